//! The picture: for each tree, a heat map of its nodes above a bar chart of its stores and line writes over time. The trees are side by
//! side.

use plotters::prelude::*;

use super::Heat;

/// Maximum number of cells. A cell is a node or a group of adjacent nodes.
const CELLS: usize = 4000;
const SIZE: (u32, u32) = (960, 640);

/// Draws the trees side by side as SVG. Colours and time axes have the same scale for all trees.
///
/// # Errors
/// An error text if the drawing fails.
pub fn svg(heats: &[Heat]) -> Result<String, String> {
    let mut svg = String::new();
    draw(heats, &mut svg).map_err(|error| error.to_string())?;
    Ok(svg)
}

fn draw(heats: &[Heat], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let width = SIZE.0 * heats.len().max(1) as u32;
    let root = SVGBackend::with_string(svg, (width, SIZE.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let cells: Vec<(usize, Vec<f64>)> = heats.iter().map(|heat| heat.cells(CELLS)).collect();
    let scale = Scale {
        most: cells.iter().flat_map(|(_, cells)| cells).copied().fold(1.0, f64::max),
        cycles: heats.iter().map(|heat| heat.cycles).max().unwrap_or(1).max(1),
        top: heats
            .iter()
            .flat_map(|heat| &heat.bins)
            .map(|bin| bin.stores.max(bin.writes))
            .max()
            .unwrap_or(1)
            .max(1),
    };
    for ((heat, cells), area) in heats.iter().zip(&cells).zip(root.split_evenly((1, heats.len().max(1)))) {
        let (map, time) = area.split_vertically(400);
        heat.draw_map(&map, cells, &scale).map_err(|error| error.to_string())?;
        heat.draw_time(&time, &scale).map_err(|error| error.to_string())?;
    }
    root.present()?;
    Ok(())
}

/// The common scale of all trees.
struct Scale {
    /// Stored words of the darkest cell.
    most: f64,
    /// Cycles of the longest run.
    cycles: u64,
    /// Height of the highest bar.
    top: u64,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), Box<dyn std::error::Error + 'a>>;

impl Heat {
    fn draw_map<'a>(&self, map: &Area<'a>, (each, cells): &(usize, Vec<f64>), scale: &Scale) -> Drawn<'a> {
        let most = scale.most;
        let columns = ((cells.len() as f64 * 2.4).sqrt().ceil() as usize).max(1);
        let rows = cells.len().div_ceil(columns).max(1);
        let of = if *each == 1 { "node".to_owned() } else { format!("{each} nodes (mean)") };
        let caption = format!(
            "{}, {} keys: words stored by {of}, white 0 to dark red {most:.0}; oldest first",
            self.engine, self.keys
        );
        let mut chart = ChartBuilder::on(map)
            .caption(caption, ("sans-serif", 16))
            .margin(12)
            .build_cartesian_2d(0..columns, 0..rows)?;
        chart.draw_series(cells.iter().enumerate().map(|(i, stores)| {
            let (x, y) = (i % columns, rows - 1 - i / columns);
            Rectangle::new([(x, y), (x + 1, y + 1)], colour(stores / most).filled())
        }))?;
        Ok(())
    }

    fn draw_time<'a>(&self, time: &Area<'a>, scale: &Scale) -> Drawn<'a> {
        let top = scale.top;
        let caption = format!(
            "words stored into nodes (blue), lines written (red), nodes made (ticks); {} cycles a bin",
            self.bin_cycles
        );
        let mut chart = ChartBuilder::on(time)
            .caption(caption, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(60)
            .build_cartesian_2d(0..scale.cycles.div_ceil(self.bin_cycles) as usize, 0..top + top / 10 + 1)?;
        chart.configure_mesh().disable_x_mesh().x_desc("bin").draw()?;
        let bars = |of: fn(&super::Bin) -> u64, colour: RGBColor| {
            self.bins
                .iter()
                .enumerate()
                .map(move |(i, bin)| Rectangle::new([(i, 0), (i + 1, of(bin))], colour.mix(0.6).filled()))
        };
        chart.draw_series(bars(|bin| bin.stores, BLUE))?;
        chart.draw_series(bars(|bin| bin.writes, RED))?;
        let ticks = self.bins.iter().enumerate().filter(|(_, bin)| bin.nodes_made > 0);
        chart.draw_series(ticks.map(|(i, _)| {
            PathElement::new([(i, top + top / 20), (i, top + top / 10 + 1)], BLACK.stroke_width(2))
        }))?;
        Ok(())
    }
}

/// A colour from white through yellow to dark red.
fn colour(heat: f64) -> RGBColor {
    let mix = |from: f64, to: f64, part: f64| (from + (to - from) * part) as u8;
    let heat = heat.clamp(0.0, 1.0);
    if heat < 0.5 {
        let part = heat * 2.0;
        RGBColor(255, mix(255.0, 190.0, part), mix(255.0, 40.0, part))
    } else {
        let part = heat * 2.0 - 1.0;
        RGBColor(mix(255.0, 130.0, part), mix(190.0, 0.0, part), mix(40.0, 20.0, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_from_white_to_dark_red() {
        assert_eq!(colour(0.0), RGBColor(255, 255, 255));
        assert_eq!(colour(0.5), RGBColor(255, 190, 40));
        assert_eq!(colour(7.0), RGBColor(130, 0, 20));
    }
}
