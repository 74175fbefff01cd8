//! SVG pictures of the simulated experiments, [`simulated`] and [`writes`].

use plotters::coord::Shift;
use plotters::prelude::*;

use super::simulated::{self, Charged};
use super::{Batch, Outcome, writes};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), Box<dyn std::error::Error + 'a>>;

const PANEL: (u32, u32) = (470, 330);

impl Outcome {
    /// The figure as SVG. `None` for measured experiments, whose tables include the noise.
    ///
    /// # Errors
    /// An error text if the drawing fails.
    pub fn svg(&self) -> Option<Result<String, String>> {
        let mut svg = String::new();
        let drawn = match self {
            Outcome::Measured(_)
            | Outcome::Layers(_)
            | Outcome::Phases(_)
            | Outcome::Keys(_)
            | Outcome::Stalls(_) => return None,
            Outcome::Simulated(report) => trees(report, &mut svg).map_err(|error| error.to_string()),
            Outcome::Writes(report) => points(report, &mut svg).map_err(|error| error.to_string()),
        };
        Some(drawn.map(|()| svg))
    }
}

fn points<'a>(report: &writes::Report, svg: &'a mut String) -> Drawn<'a> {
    let root = SVGBackend::with_string(svg, (720, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = report.points.iter().map(|point| point.sequential.max(point.random)).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption("Cycles to write a word in a line (simulated)", ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(1_u64..writes::FENCE_EVERY_MAX, 0.0..most * 1.05)?;
    chart.configure_mesh().x_desc("flushed lines between two fences").y_desc("cycles a line").draw()?;
    let at = |after| report.points.iter().find(move |point| point.after == after);
    type Of = fn(&writes::Point) -> f64;
    let patterns: [(&str, RGBColor, Of); 2] =
        [("sequential", BLUE, |point| point.sequential), ("random", RED, |point| point.random)];
    for (name, colour, of) in patterns {
        let ends = [1, writes::FENCE_EVERY_MAX];
        let fenced = (1..=writes::FENCE_EVERY_MAX)
            .filter_map(|lines| Some((lines, of(at(writes::After::FenceEvery(lines))?))));
        let series = chart.draw_series(LineSeries::new(fenced, colour.stroke_width(3)))?;
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3));
        series.label(format!("{name}, flushed, fences")).legend(legend);
        for (after, width, what) in
            [(writes::After::Flush, 2, "flushed"), (writes::After::Nothing, 1, "written only")]
        {
            let Some(point) = at(after) else { continue };
            let line = ends.map(|x| (x, of(point)));
            let series =
                chart.draw_series(DashedLineSeries::new(line, 8, 4 * width, colour.stroke_width(width)))?;
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(width));
            series.label(format!("{name}, {what}")).legend(legend);
        }
    }
    let labels = chart.configure_series_labels();
    { labels }
        .position(SeriesLabelPosition::UpperRight)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.9))
        .draw()?;
    root.present()?;
    Ok(())
}

type Bar = (&'static str, fn(&Charged) -> f64);

const BARS: [Bar; 5] = [
    ("cycles", |row| row.device.cycles),
    ("new bits (wear)", |row| row.device.bits_new),
    ("energy, nJ", |row| row.device.pj / 1000.0),
    ("flushes", |row| row.row.costs.flushes),
    ("fences", |row| row.row.costs.fences),
];

/// For several node sizes: cycles of each batch by size. For one size: the cost of an operation of each batch.
fn trees<'a>(report: &simulated::Report, svg: &'a mut String) -> Drawn<'a> {
    let batches: Vec<_> = Batch::ALL
        .into_iter()
        .filter(|batch| report.rows.iter().any(|row| row.row.batch == *batch))
        .collect();
    let by_size = report.node_lines.len() > 1;
    // By size, one more panel for the legend of colours.
    let panels = if by_size { batches.len() + 1 } else { batches.len() * BARS.len() };
    let columns = if by_size { 2 } else { BARS.len().min(3) };
    let rows = panels.div_ceil(columns) as u32;
    let root = SVGBackend::with_string(svg, (PANEL.0 * columns as u32, PANEL.1 * rows)).into_drawing_area();
    root.fill(&WHITE)?;
    let areas = root.split_evenly((rows as usize, columns));
    if by_size {
        for (area, batch) in areas.iter().zip(&batches) {
            sizes(area, report, *batch)?;
        }
        colours(&areas[batches.len()], report)?;
    } else {
        let panels = batches.iter().flat_map(|batch| BARS.map(|bar| (*batch, bar)));
        for (area, (batch, bar)) in areas.iter().zip(panels) {
            bars(area, report, batch, bar)?;
        }
    }
    root.present()?;
    Ok(())
}

/// Names of the trees, each once, in the order of the report. The index determines the colour.
fn names(report: &simulated::Report) -> Vec<&'static str> {
    let mut names = Vec::new();
    for row in &report.rows {
        if !names.contains(&row.row.tree) {
            names.push(row.row.tree);
        }
    }
    names
}

fn colours<'a>(area: &Area<'a>, report: &simulated::Report) -> Drawn<'a> {
    for (i, name) in names(report).into_iter().enumerate() {
        let y = 34 + 26 * i as i32;
        let colour = Palette99::pick(i);
        area.draw(&PathElement::new([(60, y), (100, y)], colour.stroke_width(3)))?;
        area.draw(&Circle::new((80, y), 4, colour.filled()))?;
        area.draw(&Text::new(name, (112, y - 8), ("sans-serif", 15)))?;
    }
    Ok(())
}

/// Cycles by lines of a node, on a logarithmic scale, because the slowest trees take many times as long as the fastest.
fn sizes<'a>(area: &Area<'a>, report: &simulated::Report, batch: Batch) -> Drawn<'a> {
    let rows: Vec<_> = report.rows.iter().filter(|row| row.row.batch == batch).collect();
    let cycles = || rows.iter().map(|row| row.device.cycles.max(1.0));
    let (least, most) = (cycles().fold(f64::MAX, f64::min), cycles().fold(1.0, f64::max));
    let (first, last) = (report.node_lines[0], report.node_lines[report.node_lines.len() - 1]);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: cycles an operation", batch.name()), ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(56)
        .build_cartesian_2d(first..last.max(first + 1), (least * 0.8..most * 1.25).log_scale())?;
    let whole = |cycles: &f64| format!("{cycles:.0}");
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc("lines of a node")
        .y_label_formatter(&whole)
        .light_line_style(BLACK.mix(0.06))
        .draw()?;
    for (i, name) in names(report).into_iter().enumerate() {
        let colour = Palette99::pick(i).to_rgba();
        let line = rows.iter().filter(|row| row.row.tree == name);
        let line: Vec<_> = line.map(|row| (row.row.node_lines, row.device.cycles.max(1.0))).collect();
        chart.draw_series(line.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
    }
    Ok(())
}

fn bars<'a>(area: &Area<'a>, report: &simulated::Report, batch: Batch, (what, of): Bar) -> Drawn<'a> {
    let rows: Vec<_> = report.rows.iter().filter(|row| row.row.batch == batch).collect();
    let most = rows.iter().map(|row| of(row)).fold(0.0, f64::max).max(1e-9);
    let names: Vec<&str> = rows.iter().map(|row| row.row.tree).collect();
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: {what}", batch.name()), ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(20)
        .y_label_area_size(110)
        .build_cartesian_2d(0.0..most * 1.1, (0..rows.len()).into_segmented())?;
    // Bars are numbered from the bottom. There is one segment more than bars.
    let name = |segment: &SegmentValue<usize>| match segment {
        SegmentValue::CenterOf(i) if *i < names.len() => names[names.len() - 1 - i].to_owned(),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_labels(5)
        .light_line_style(BLACK.mix(0.06))
        .y_labels(rows.len())
        .y_label_formatter(&name)
        .draw()?;
    chart.draw_series(rows.iter().enumerate().map(|(i, row)| {
        let place = rows.len() - 1 - i;
        let corners = [(0.0, SegmentValue::Exact(place)), (of(row), SegmentValue::Exact(place + 1))];
        let mut bar = Rectangle::new(corners, Palette99::pick(i).mix(0.8).filled());
        bar.set_margin(3, 3, 0, 0);
        bar
    }))?;
    Ok(())
}
