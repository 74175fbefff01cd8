fn main() {
    let mut options = crash_tree::Options { threads: 1, ..crash_tree::Options::new("line".parse().unwrap()) };
    if let Some(ops) = std::env::args().nth(1) {
        options.ops = ops.parse().unwrap();
    }
    let r = crash_tree::run(&options, &|_| {});
    println!("{r}");
}
