//! wip
use lab::crash_tree::{run, suite, Engine, Options};

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
    let r = suite::mutation(Engine::Wbtree, 1, &|_| ());
    println!("{r}");
    for (m, v) in r.killed { println!("killed {m} by {}", v.op); }
    let _ = run;
}
