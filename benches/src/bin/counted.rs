//! `counted NAME TIMES` runs an operation `TIMES` times, for instruction counts, and prints the
//! nanoseconds per run.

use std::time::Instant;

use benches::OPERATIONS;

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(name), Some(times)) = (args.next(), args.next().and_then(|n| n.parse::<u32>().ok()))
    else {
        // Without arguments, list the operations.
        OPERATIONS.iter().for_each(|(name, _)| println!("{name}"));
        return;
    };
    let found = OPERATIONS.into_iter().find(|(own, _)| **own == *name);
    let mut run = found.expect("a known operation").1();
    let started = Instant::now();
    (0..times).for_each(|_| run());
    println!("{}", started.elapsed().as_nanos() / u128::from(times.max(1)));
}
