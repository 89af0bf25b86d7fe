//! The parts of `cargo xtask test`, and their needs.

use std::process::Command;

use crate::Result;
use crate::needs::{
    CARGO_DENY, CHROMIUM, CLIPPY, HAPROXY, KILL, NGINX, Need, REDIS, RUSTFMT, SCRIPT, SED, SH,
    VALGRIND,
};
use crate::run::{build, cargo, output, root, run as step, target};
use crate::{
    api, apps, authorization, bundle, chaos, conformance, instructions, interop, model, package,
    platforms, rivals, simulate, tidy, vectors,
};

pub struct Part {
    pub name: &'static str,
    pub needs: &'static [Need],
    /// True if it is a part of `cargo xtask check`.
    pub is_daily: bool,
    pub run: fn() -> Result,
}

const fn daily(name: &'static str, needs: &'static [Need], run: fn() -> Result) -> Part {
    Part { name, needs, is_daily: true, run }
}

const fn part(name: &'static str, needs: &'static [Need], run: fn() -> Result) -> Part {
    Part { name, needs, is_daily: false, run }
}

const SUITE: &[Need] = &[Need::Node, Need::NpmPackages("suite")];
const SUITE_PYTHON: &[Need] =
    &[Need::Node, Need::NpmPackages("suite"), Need::PythonPackages("python")];
const TYPESCRIPT: &[Need] = &[Need::Node, Need::NpmPackages("typescript")];
const PYTHON: &[Need] = &[Need::PythonPackages("python")];
const PYTHON_1: &[Need] = &[Need::PythonPackages("python-1")];
const TYPESCRIPT_1: &[Need] = &[Need::Node, Need::NpmPackages("typescript-1")];
const TASKS: &[Need] =
    &[Need::PythonPackages("fastmcp"), Need::Node, Need::NpmPackages("typescript")];
const INSPECTOR: &[Need] = &[Need::Node, Need::NpmPackages("inspector")];
const APPS: &[Need] = &[Need::Node, Need::NpmPackages("apps"), CHROMIUM];
const BUNDLE: &[Need] =
    &[Need::Node, Need::NpmPackages("bundle"), Need::PythonPackages("registry")];
const PLATFORMS: &[Need] = &[Need::Node, Need::CrossRust];
const AUTHORIZATION: &[Need] = &[Need::Node, Need::NpmPackages("authorization")];
const BROWSER: &[Need] = &[Need::Node, Need::NpmPackages("authorization"), CHROMIUM];
const AUTHORIZATION_PYTHON: &[Need] =
    &[Need::Node, Need::NpmPackages("authorization"), Need::PythonPackages("python")];
const AUTHORIZATION_TYPESCRIPT: &[Need] =
    &[Need::Node, Need::NpmPackages("authorization"), Need::NpmPackages("typescript")];
const RIVALS: &[Need] =
    &[Need::PythonPackages("python"), Need::Node, Need::NpmPackages("typescript")];

/// All parts, in their order.
pub const PARTS: &[Part] = &[
    daily("fmt", &[RUSTFMT], || step(&mut cargo(&["fmt", "--all", "--check"]))),
    daily("tidy", &[], || tidy::run(&[])),
    part("licenses", &[CARGO_DENY], tidy::licenses::check),
    daily("clippy", &[CLIPPY], clippy),
    daily("tests", &[], tests),
    daily("redis-tests", &[REDIS], || run_selected(&REDIS_TESTS)),
    daily("postgres-tests", &[Need::Postgres], || run_selected(&POSTGRES_TESTS)),
    daily("process-tests", &[SH, SED, KILL], || run_selected(&PROCESS_TESTS)),
    daily("terminal-tests", &[SCRIPT], || run_selected(&TERMINAL_TESTS)),
    daily("signal-tests", &[KILL], || run_selected(&SIGNAL_TESTS)),
    part("doc-tests", &[], || {
        step(&mut cargo(&["test", "--workspace", "--all-features", "--doc"]))
    }),
    // Without `aws-lc`, another library seals.
    part("codec-tests", &[], || step(&mut cargo(&["test", "--package", "mrtr-codec"]))),
    part("features", &[CLIPPY], features),
    part("docs", &[], docs),
    part("api", &[Need::MinimumRust], || api::run(&[])),
    part("package", &[], || package::run(&[])),
    part("examples", &[], examples),
    part("benches", &[CLIPPY], benches),
    part("vectors", PYTHON, || vectors::run(&[])),
    part("conformance", SUITE, || conformance::run(&[])),
    part("conformance-gateway-python", SUITE_PYTHON, || conformance::through_gateway("python")),
    part("conformance-gateway-rmcp", SUITE, || conformance::through_gateway("rmcp")),
    part("interop-python", PYTHON, || interop::run(&["python".to_owned()])),
    part("interop-typescript", TYPESCRIPT, || interop::run(&["typescript".to_owned()])),
    part("interop-python-1", PYTHON_1, || interop::run(&["python-1".to_owned()])),
    part("interop-typescript-1", TYPESCRIPT_1, || interop::run(&["typescript-1".to_owned()])),
    part("interop-rmcp", &[], || interop::run(&["rmcp".to_owned()])),
    part("interop-rmcp-0", &[], || interop::run(&["rmcp-0".to_owned()])),
    part("interop-tasks", TASKS, || interop::run(&["tasks".to_owned()])),
    part("interop-inspector", INSPECTOR, || interop::run(&["inspector".to_owned()])),
    part("authorization", AUTHORIZATION, authorization::without_browser),
    part("authorization-browser", BROWSER, authorization::with_browser),
    part("authorization-python", AUTHORIZATION_PYTHON, authorization::with_python),
    part("authorization-typescript", AUTHORIZATION_TYPESCRIPT, authorization::with_typescript),
    part("apps", APPS, || apps::run(&[])),
    part("bundle", BUNDLE, || bundle::run(&[])),
    part("platforms", PLATFORMS, || platforms::run(&[])),
    part("rivals", RIVALS, || rivals::run(&[])),
    part("instructions", &[VALGRIND], || instructions::run(&[])),
    part("model", &[], || model::run(&[])),
    part("simulate", &[], || simulate::run(&[])),
    part("simulate-tasks", &[], simulate_tasks),
    part("simulate-wires", &[], || {
        simulate::run(&["--wire", "all", "--flows", "20000"].map(str::to_owned))
    }),
    part("simulate-legacy", &[], || simulate::run(&["--era", "2025-11-25"].map(str::to_owned))),
    part("chaos-nginx", &[NGINX], || chaos("--minutes 0.5 --balancer nginx")),
    part("chaos-haproxy", &[HAPROXY], || chaos("--minutes 0.5 --balancer haproxy")),
    part("chaos-gateway", &[NGINX], || chaos("--gateway --minutes 0.75")),
    // The run must find the fault.
    part("chaos-break-retire", &[NGINX], || chaos("--minutes 0.4 --break retire")),
    part("chaos-break-drain", &[NGINX], || chaos("--minutes 0.4 --break drain")),
    part("chaos-tasks", &[Need::Postgres], || chaos("--tasks --minutes 0.75")),
    part("load", &[], || chaos::load(&["--minutes", "0.75"].map(str::to_owned))),
];

fn clippy() -> Result {
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--quiet"];
    step(cargo(&clippy).args(DENY_WARNINGS))
}

/// Tests that run a program which not every machine has, selected by a part of their names.
struct SelectedTests {
    targets: &'static [&'static str],
    filter: &'static str,
}

const REDIS_TESTS: SelectedTests =
    SelectedTests { targets: &["--lib", "--test=it"], filter: "redis" };
const POSTGRES_TESTS: SelectedTests =
    SelectedTests { targets: &["--lib", "--test=it"], filter: "postgres" };
const PROCESS_TESTS: SelectedTests = SelectedTests { targets: &["--test=it"], filter: "child::" };
const TERMINAL_TESTS: SelectedTests =
    SelectedTests { targets: &["--test=it"], filter: "at_a_terminal::" };
const SIGNAL_TESTS: SelectedTests =
    SelectedTests { targets: &["--test=stdio"], filter: "server_exits_on_sigterm" };

/// Runs all tests except the selected ones and those in documentation.
fn tests() -> Result {
    let skipped = [REDIS_TESTS, POSTGRES_TESTS, PROCESS_TESTS, TERMINAL_TESTS, SIGNAL_TESTS]
        .map(|tests| tests.filter);
    let mut test = cargo(&["test", "--workspace", "--all-features", "--tests", "--"]);
    step(test.args(skipped.map(|filter| format!("--skip={filter}"))))
}

fn run_selected(SelectedTests { targets, filter }: &SelectedTests) -> Result {
    // The whole workspace: a single package would be rebuilt with fewer features of its
    // dependencies.
    let command = || {
        let mut command = cargo(&["test", "--quiet", "--workspace", "--all-features"]);
        command.args(*targets).args([*filter, "--"]);
        command
    };
    let list = output(command().arg("--list"))?;
    if !list.lines().any(|line| line.ends_with(": test")) {
        return Err(format!("there is no test named {filter}").into());
    }
    step(&mut command())
}

/// Options for clippy. `RUSTFLAGS` would apply to dependencies, too, and compile them again.
const DENY_WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

/// Checks each crate alone, with its own features only.
fn features() -> Result {
    for alone in [
        &["--package", "mrtr-schema"][..],
        &["--package", "mrtr-codec", "--no-default-features"],
        &["--package", "mrtr-transport"],
        &["--package", "mrtr-legacy", "--tests"],
        &["--package", "mrtr-legacy", "--no-default-features", "--features", "server"],
        &["--package", "mrtr-legacy", "--no-default-features", "--features", "client"],
        &["--package", "mrtr-legacy", "--no-default-features", "--features", "redis"],
        &["--package", "mrtr-legacy", "--no-default-features", "--features", "postgres"],
        &["--package", "mrtr-dialects", "--tests"],
        &["--package", "mrtr-dialects", "--features", "server"],
        &["--package", "mrtr-dialects", "--features", "client"],
        &["--package", "mrtr-gateway"],
        &["--package", "mrtr-middleware"],
        &["--package", "mrtr-openapi"],
        &["--package", "mrtr-openapi", "--features", "reqwest"],
        &["--package", "mrtr-openapi", "--features", "yaml"],
        &["--package", "mrtr-auth"],
        &["--package", "mrtr-stores", "--tests"],
        &["--package", "mrtr-stores", "--features", "postgres"],
        &["--package", "mrtr-stores", "--features", "redis"],
        &["--package", "mrtr-stores", "--features", "sqlite"],
        &["--package", "mrtr-auth", "--features", "client"],
        &["--package", "mrtr-auth", "--features", "resource"],
        &["--package", "mrtr", "--tests"],
        &["--package", "mrtr-examples", "--examples"],
        &["--package", "mrtr", "--no-default-features", "--features", "server"],
        &["--package", "mrtr", "--no-default-features", "--features", "server,legacy"],
        &["--package", "mrtr", "--no-default-features", "--features", "client"],
        &["--package", "mrtr", "--no-default-features", "--features", "client,legacy"],
        &["--package", "mrtr", "--no-default-features", "--features", "server,dialects"],
        &["--package", "mrtr", "--no-default-features", "--features", "client,dialects"],
        &["--package", "mrtr", "--no-default-features", "--features", "gateway"],
        &["--package", "mrtr", "--no-default-features", "--features", "middleware"],
        &["--package", "mrtr", "--no-default-features", "--features", "development"],
        &["--package", "mrtr", "--no-default-features", "--features", "openapi,tls"],
        &["--package", "mrtr", "--no-default-features", "--features", "auth-client"],
        &["--package", "mrtr", "--no-default-features", "--features", "auth-server"],
        &["--package", "mrtr", "--no-default-features", "--features", "auth-connect"],
        &["--package", "mrtr", "--no-default-features", "--features", "aws-lc"],
        &["--package", "mrtr", "--no-default-features", "--features", "tasks-postgres"],
        &["--package", "mrtr", "--no-default-features", "--features", "tasks-redis"],
        &["--package", "mrtr", "--no-default-features", "--features", "tasks-sqlite"],
    ] {
        step(cargo(&["clippy", "--quiet"]).args(alone).args(DENY_WARNINGS))?;
    }
    Ok(())
}

fn docs() -> Result {
    let doc = ["doc", "--workspace", "--no-deps", "--all-features", "--quiet"];
    step(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings"))
}

fn examples() -> Result {
    let examples = build()?.join("examples");
    for (name, args) in [
        ("quickstart", &["--auto"][..]),
        ("quickstart", &["--old-client"]),
        ("report", &["--auto"]),
        ("upgrades", &[]),
    ] {
        step(Command::new(examples.join(name)).args(args).current_dir(root()))?;
    }
    for example in ["worker", "otlp"] {
        let manifest = format!("--manifest-path=examples/{example}/Cargo.toml");
        let run = ["run", "--quiet", "--locked", &manifest];
        step(cargo(&run).env("CARGO_TARGET_DIR", target()))?;
    }
    Ok(())
}

/// Checks that the benchmarks compile, without a warning of the compiler.
fn benches() -> Result {
    let check = |args: &[&str]| {
        let mut check = cargo(&["clippy", "--quiet", "--locked"]);
        check.args(args).args(DENY_WARNINGS).args(["-A", "clippy::all"]);
        step(check.env("CARGO_TARGET_DIR", target()))
    };
    check(&["--benches", "--manifest-path=benches/Cargo.toml"])?;
    for name in [
        "load",
        "floors",
        "mrtr",
        "gateway",
        "tower-mcp",
        "tasks",
        "dbos",
        "readme",
        "minimal/mrtr-server",
        "minimal/mrtr-client",
        "minimal/rmcp-server",
        "minimal/rmcp-client",
    ] {
        check(&[&format!("--manifest-path=benches/{name}/Cargo.toml")])?;
    }
    Ok(())
}

/// Simulates calls as tasks, and calls that become tasks.
fn simulate_tasks() -> Result {
    for carrier in ["store", "handover"] {
        simulate::run(&["--flows", "20000", "--carrier", carrier].map(str::to_owned))?;
    }
    Ok(())
}

fn chaos(options: &str) -> Result {
    chaos::run(&options.split(' ').map(str::to_owned).collect::<Vec<_>>())
}
