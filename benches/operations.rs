//! Benchmarks the parts of a request's processing:
//! `cargo bench --manifest-path benches/Cargo.toml --bench operations`.

use benches::OPERATIONS;
use divan::Bencher;

fn main() {
    divan::main();
}

#[divan::bench(args = OPERATIONS.map(|(name, _)| name))]
fn operation(bencher: Bencher, name: &str) {
    let found = OPERATIONS.into_iter().find(|(own, _)| *own == name);
    let mut run = found.expect("a known operation").1();
    bencher.bench_local(move || run());
}
