//! What the project does with itself: `cargo xtask` lists it.

mod api;
mod bench;
mod callgrind;
mod chaos;
mod conformance;
mod fuzz;
mod instructions;
mod interop;
mod mutants;
mod package;
mod page;
mod requirements;
mod rivals;
mod run;
mod simulate;
mod test;
mod tidy;
mod tools;
mod vectors;

use std::process::ExitCode;

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Command {
    name: &'static str,
    usage: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Result,
}

/// All commands. The help is made of this table, so no command is missing in it.
const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        usage: "",
        help: "all that must hold: fmt, clippy, tidy, tests, docs, examples, simulation, chaos, load, conformance, vectors, interop, rivals",
        run: test::run,
    },
    Command {
        name: "tidy",
        usage: "",
        help: "the crate graph, file sizes, and words that do not belong here",
        run: tidy::run,
    },
    Command {
        name: "conformance",
        usage: "[server|client] [scenario…]",
        help: "the official conformance suite against our fixtures",
        run: conformance::run,
    },
    Command {
        name: "interop",
        usage: "[python|typescript|rmcp|inspector…]",
        help: "foreign clients against our server, and our client against foreign servers",
        run: interop::run,
    },
    Command {
        name: "simulate",
        usage: "[--flows N] [--seed S]",
        help: "random handlers and random faults, held against what rounds promise (100,000 flows if not said)",
        run: simulate::run,
    },
    Command {
        name: "chaos",
        usage: "[--minutes N] [--seed S] [--balancer nginx|haproxy] [--break WHAT]",
        help: "replicas killed, drained, rotated and upgraded behind a load balancer (2 minutes); --break: pinning, recording, retire, drain",
        run: chaos::run,
    },
    Command {
        name: "load",
        usage: "[--minutes N] [--connections N]",
        help: "a thousand connections, one request of a hundred malformed: what is answered, and what is held (5 minutes)",
        run: chaos::load,
    },
    Command {
        name: "vectors",
        usage: "[--write]",
        help: "the token format's vectors against a second implementation; or writes them",
        run: vectors::run,
    },
    Command {
        name: "fuzz",
        usage: "[target…] [--minutes N]",
        help: "the fuzz targets, each for N minutes (1 if not said); needs a C++ compiler",
        run: fuzz::run,
    },
    Command {
        name: "mutants",
        usage: "[option of cargo-mutants…]",
        help: "changes of the code of codec and rounds that some test has to notice; takes two hours",
        run: mutants::run,
    },
    Command {
        name: "bench",
        usage: "[part…] [--rounds N] [--seconds S] [--all] [--write] | --render",
        help: "speed and size beside a bare server and other SDKs, and their growth; --write: docs/benchmarks; --render: the page from its data",
        run: bench::run,
    },
    Command {
        name: "instructions",
        usage: "[--write]",
        help: "how many instructions operations take, held against what is written down; needs valgrind",
        run: instructions::run,
    },
    Command {
        name: "package",
        usage: "[--verify]",
        help: "packages the published crates, and runs a program against the packaged files; --verify: cargo's own check, too",
        run: package::run,
    },
    Command {
        name: "api",
        usage: "[--write]",
        help: "the public API of each published crate, compared with api/; or writes it there",
        run: api::run,
    },
    Command {
        name: "rivals",
        usage: "[--write]",
        help: "requests that test requirements, sent to our server and to other SDKs; --write: conformance/rivals.toml",
        run: rivals::run,
    },
    Command {
        name: "requirements",
        usage: "[--write]",
        help: "how many requirements of the ledger are tested; --write: docs/requirements.md",
        run: requirements::run,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = args.split_first() else {
        return help();
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprintln!("no such command: {name}");
        help();
        return ExitCode::FAILURE;
    };
    match (command.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\n{name} failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn help() -> ExitCode {
    println!("cargo xtask <command>\n");
    for Command { name, usage, help, .. } in COMMANDS {
        let command = format!("{name} {usage}");
        // What is long has a line of its own.
        let end = if command.len() > 45 { format!("\n{:48}", "") } else { " ".to_owned() };
        println!("  {command:<45}{end}{help}");
    }
    ExitCode::SUCCESS
}
