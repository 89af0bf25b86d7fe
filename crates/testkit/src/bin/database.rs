//! Starts a durable PostgreSQL server for benchmarks, and prints the settings of a connection. The
//! server ends with the standard input.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::io::Read as _;

use mrtr_testkit::servers::Postgres;

fn main() -> std::io::Result<()> {
    let server = Postgres::start_as_shipped();
    println!("{}", server.config());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
