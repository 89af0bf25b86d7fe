//! The project's task runner: `cargo xtask` lists its commands.

mod api;
mod apps;
mod authorization;
mod bench;
mod bundle;
mod callgrind;
mod chaos;
mod conformance;
mod cross_rust;
mod fuzz;
mod instructions;
mod interop;
mod model;
mod mutants;
mod needs;
mod package;
mod page;
mod platforms;
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

/// All commands. The help is printed from this table.
const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        usage: "[part…] [--plan]",
        help: "everything that must pass; installs what it needs; --plan: only lists needs and parts",
        run: test::run,
    },
    Command {
        name: "check",
        usage: "",
        help: "the checks for every day: format, clippy, tidy, unit and integration tests",
        run: test::check,
    },
    Command {
        name: "tidy",
        usage: "[graph|files|cycles|words|prose|licenses…]",
        help: "crate graph, file rules, module cycles, retired words, style of doc comments",
        run: tidy::run,
    },
    Command {
        name: "conformance",
        usage: "[server|gateway|client] [revision] [scenario…] | gateway-python | gateway-rmcp",
        help: "runs the official conformance suite against crates/conformance, at every revision that it covers; gateway-python, gateway-rmcp: against a server on this SDK, directly and through a gateway",
        run: conformance::run,
    },
    Command {
        name: "interop",
        usage: "[python|typescript|rmcp|tasks|inspector…]",
        help: "runs other SDKs' clients against our server, and our client against their servers",
        run: interop::run,
    },
    Command {
        name: "authorization",
        usage: "[row…]",
        help: "logs our client in at an authorization server from npm, with a browser, and sends its tokens to our server",
        run: authorization::run,
    },
    Command {
        name: "apps",
        usage: "[PICTURE]",
        help: "shows the view of the example `apps` in a browser, with another SDK as the host; PICTURE: a PNG file of the view",
        run: apps::run,
    },
    Command {
        name: "bundle",
        usage: "",
        help: "checks the bundle and the server.json that the command `mrtr` makes of an example, with programs of other projects",
        run: bundle::run,
    },
    Command {
        name: "platforms",
        usage: "[wasm|windows|macos…]",
        help: "checks the published crates for Windows and macOS, and runs the tests of the pure ones in WebAssembly",
        run: platforms::run,
    },
    Command {
        name: "model",
        usage: "",
        help: "checks every state of a small model of tasks, and that faults are found",
        run: model::run,
    },
    Command {
        name: "simulate",
        usage: "[--flows N] [--seed S] [--era 2025-11-25] [--carrier token|store|handover|all]",
        help: "runs random handlers under random faults and checks the guarantees (default: 100,000 calls); --era: of legacy clients; --carrier: as tasks",
        run: simulate::run,
    },
    Command {
        name: "chaos",
        usage: "[--gateway|--tasks] [--minutes N] [--seed S] [--balancer nginx|haproxy] [--break FAULT]",
        help: "kills, drains, rotates and upgrades replicas behind a load balancer (default: 2 minutes); FAULT: pinning, recording, retire, drain; --gateway: a gateway to two servers; FAULT: forwarding, retire, drain; --tasks: with tasks in PostgreSQL, which is killed, too; FAULT: lease, fence, commit, owner, wakeup",
        run: chaos::run,
    },
    Command {
        name: "load",
        usage: "[--minutes N] [--connections N]",
        help: "a thousand connections, one malformed request in a hundred: checks responses and memory (default: 5 minutes)",
        run: chaos::load,
    },
    Command {
        name: "vectors",
        usage: "[--write]",
        help: "checks the token format's test vectors against a second implementation; --write: generates them",
        run: vectors::run,
    },
    Command {
        name: "fuzz",
        usage: "[target…] [--minutes N]",
        help: "runs each fuzz target (default: 1 minute); needs a C++ compiler",
        run: fuzz::run,
    },
    Command {
        name: "mutants",
        usage: "[option of cargo-mutants…]",
        help: "mutation tests of the codec and the replay engine; takes two hours",
        run: mutants::run,
    },
    Command {
        name: "bench",
        usage: "[part…] [--rounds N] [--seconds S] [--all] [--write] | --render",
        help: "measures speed, size and scaling beside bare servers and other SDKs; --write: docs/benchmarks; --render: the page from its data",
        run: bench::run,
    },
    Command {
        name: "instructions",
        usage: "[--write]",
        help: "compares the instruction counts of single operations with benches/instructions.txt",
        run: instructions::run,
    },
    Command {
        name: "package",
        usage: "[--verify]",
        help: "packages the published crates, and builds and runs a program against the packages; --verify: with the check of `cargo package`",
        run: package::run,
    },
    Command {
        name: "api",
        usage: "[--write]",
        help: "compares the public API of each published crate with its text in api/; --write: writes the texts",
        run: api::run,
    },
    Command {
        name: "rivals",
        usage: "[--write]",
        help: "sends requests that test requirements to our server and to other SDKs' servers; --write: conformance/rivals.toml",
        run: rivals::run,
    },
    Command {
        name: "requirements",
        usage: "[--write]",
        help: "counts the requirements of the ledger that are tested; --write: docs/requirements.md",
        run: requirements::run,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = args.split_first() else {
        return help();
    };
    if ["help", "--help", "-h"].contains(&name.as_str()) {
        help();
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        help();
        eprintln!("\nno such command: {name}");
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
        println!("  {}\n      {help}", format!("{name} {usage}").trim_end());
    }
    ExitCode::SUCCESS
}
