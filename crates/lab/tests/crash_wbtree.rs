//! wip
use lab::crash_tree::{suite, Engine, Options};

#[test]
fn exploration() {
    for engine in Engine::ALL {
    let o = Options::new(engine);
    let mut n = 0;
    for r in suite::exploration(&o) {
        let report = r.explore(&r.bounds(1), None);
        n += report.images + report.nested_images;
        println!("{:.1} s {}: {report}", report.elapsed.as_secs_f32(), r.name);
    }
    println!("{n}");
    }
}
#[test]
fn mutation() {
    let start = std::time::Instant::now();
    let last = std::cell::Cell::new(start);
    let r = suite::mutation(Engine::Wbtree, 1, &|what| { let now = std::time::Instant::now(); println!("{:.1}s then {what}", (now - last.replace(now)).as_secs_f32()); });
    println!("{r} {:?}", start.elapsed());
    for (m, v) in r.killed { println!("killed {m} by {}", v.op); }
}
