//! `mrtr gateway`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use mrtr::{Context, Result, Tool};
use mrtr_testkit::free_ports;
use serde_json::{Value, json};

use crate::{Guest, json_of, mrtr, scratch, serve_tool, text};

const KEY: &str = "active ABEiM0RVZneImaq7zN3u_wARIjNEVWZ3iJmqu8zd7v8";

async fn greet(cx: Context) -> Result<String> {
    let Guest { name } = cx.elicit("guest", "Who?").await?;
    Ok(format!("Hello, {name}."))
}

/// Writes a configuration with three servers, of which one, at `gone`, does not run. The tool
/// `greet` asks.
fn config(name: &str, gone: u16) -> String {
    let asks = serve_tool(|| Tool::new("greet", "Greets a guest", greet));
    let says = serve_tool(|| Tool::new("say", "Says something", async || "said"));
    let gone = format!("http://127.0.0.1:{gone}/mcp");
    let servers = json!({ "mcpServers": {
        "asks": { "url": asks }, "says": { "url": says }, "gone": { "url": gone },
    } });
    let file = scratch(name).join("servers.json");
    std::fs::write(&file, servers.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A gateway, which is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a gateway, and waits until it serves. Returns what it has printed.
fn start(config: &str, address: &str) -> (Running, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mrtr"));
    command.args(["gateway", config, "--listen", address]).env("MRTR_KEYS", KEY);
    // A server with keys of its own ignores those for development, even invalid ones.
    command.env("MRTR_DEVELOPMENT_KEYS", "invalid");
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut stderr = BufReader::new(running.0.stderr.take().unwrap());
    let mut printed = String::new();
    while !printed.contains("serving 3 servers") {
        assert!(stderr.read_line(&mut printed).unwrap() > 0, "{printed}");
    }
    // What it prints later must not block it.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    (running, printed)
}

#[test]
fn gateway_serves_all_servers_as_one_and_continues_after_a_restart() {
    let ports = free_ports(2).unwrap();
    let config = config("gateway", ports[0]);
    let file = |name: &str| scratch("gateway").join(name).to_str().unwrap().to_owned();
    let (answers, paused) = (file("answers.json"), file("paused.json"));
    std::fs::write(&answers, r#"{ "guest": { "name": "Ada" } }"#).unwrap();
    let address = format!("127.0.0.1:{}", ports[1]);
    let url = format!("http://{address}/mcp");

    let (gateway, printed) = start(&config, &address);
    assert!(printed.contains("upstream=\"gone\""), "{printed}");
    let tools = json_of(&mrtr(&["tools", &url, "--json"]));
    let mut names: Vec<_> = tools.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    names.sort_unstable_by_key(|name| name.as_str());
    assert_eq!(names, ["asks__greet", "says__say"]);
    assert_eq!(text(&mrtr(&["call", &url, "says__say"]).stdout), "said\n");
    let call = mrtr(&["call", &url, "asks__greet", "--pause", &paused]);
    assert_eq!(text(&call.stdout), "guest: Who?\n", "{}", text(&call.stderr));
    drop(gateway);

    let (_gateway, _) = start(&config, &address);
    let done = mrtr(&["call", &url, "--resume", &paused, "--answers", &answers]);
    assert_eq!(text(&done.stdout), "Hello, Ada.\n", "{}", text(&done.stderr));
}

#[test]
fn gateway_serves_the_process_that_started_it() {
    let config = config("gateway-stdio", free_ports(1).unwrap()[0]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_mrtr"));
    command.args(["gateway", &config]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running(command.stderr(Stdio::null()).spawn().unwrap());
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "says__say", "_meta": meta });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let mut stdin = running.0.stdin.take().unwrap();
    writeln!(stdin, "{call}").unwrap();
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let response: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(response["result"]["content"][0]["text"], "said", "{line}");
    drop(stdin);
    assert!(running.0.wait().unwrap().success(), "it ends with its input");
}

#[test]
fn gateway_refuses_what_it_cannot_serve() {
    let dir = scratch("gateway-wrong");
    let file = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let none = file("none.json", r#"{ "mcpServers": {} }"#);
    let secret = r#"{ "mcpServers": { "a": { "url": "http://x/${NO_SUCH_VARIABLE}" } } }"#;
    let secret = file("secret.json", secret);
    let text_file = file("text.json", "servers");
    let missing = dir.join("missing.json").to_str().unwrap().to_owned();
    for (args, why) in [
        (&[&*none, "--listen", "0.0.0.0:7000"][..], "0.0.0.0:7000 is not a loopback address"),
        (&[&secret], "NO_SUCH_VARIABLE"),
        (&[&text_file], "text.json: invalid server configuration"),
        (&[&missing], "missing.json: "),
    ] {
        let refused = mrtr(&[&["gateway"], args].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
        assert!(refused.stdout.is_empty());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_mrtr"));
    command.args(["gateway", &none]).env("MRTR_DEVELOPMENT_KEYS", "active short");
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let why = "environment variable MRTR_DEVELOPMENT_KEYS: ";
    assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = mrtr(&["gateway", &none, "--listen", &address]);
    assert_eq!(refused.status.code(), Some(4));
    let why = format!("cannot listen on {address}");
    assert!(text(&refused.stderr).contains(&why), "{}", text(&refused.stderr));
}

#[cfg(unix)]
mod child {
    use super::*;

    /// Answers `server/discover`. After the end of its input, it takes a while to write a file.
    const SERVER: &str = r#"
        while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\("probe-1"\|[0-9]*\).*/\1/p')
            test -n "$id" && echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{}}}"
        done
        n=0
        while test $n -lt 100; do n=$((n + $(printf 1 | sed 1q))); done
        echo saved > "$0"
    "#;

    #[test]
    fn upstream_can_save_its_work_when_the_gateway_ends() {
        let folder = scratch("gateway-child");
        let saved = folder.join("saved.txt");
        let _ = std::fs::remove_file(&saved);
        let child = json!({ "command": "sh", "args": ["-c", SERVER, saved.to_str().unwrap()] });
        let config = folder.join("servers.json");
        std::fs::write(&config, json!({ "mcpServers": { "child": child } }).to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_mrtr"));
        command.args(["gateway", config.to_str().unwrap()]).stdin(Stdio::null());
        let mut running = Running(command.stdout(Stdio::null()).spawn().unwrap());
        assert!(running.0.wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(&saved).unwrap(), "saved\n");
    }

    /// A server that ignores the end of its input, such as one that a package manager has started.
    /// It never answers, so the gateway is still starting.
    const STUBBORN: &str = "trap 'echo > ended; exit' TERM; echo > started; \
                          while true; do sleep 0.1; done";

    #[test]
    fn gateway_ends_its_servers_also_while_it_starts() {
        let start = |signal| {
            let folder = scratch(&format!("gateway-{signal}"));
            for file in ["started", "ended"] {
                let _ = std::fs::remove_file(folder.join(file));
            }
            let server = json!({ "command": "sh", "args": ["-c", STUBBORN] });
            let servers = json!({ "mcpServers": { "slow": server } });
            std::fs::write(folder.join("servers.json"), servers.to_string()).unwrap();
            let mut gateway = Command::new(env!("CARGO_BIN_EXE_mrtr"));
            gateway.args(["gateway", "servers.json", "--listen", "127.0.0.1:0"]);
            let gateway = gateway.current_dir(&folder).stdin(Stdio::null()).stderr(Stdio::null());
            (signal, folder, Running(gateway.spawn().unwrap()))
        };
        let mut started = ["TERM", "INT"].map(start);
        for (signal, folder, gateway) in &mut started {
            while !folder.join("started").exists() {
                assert!(gateway.0.try_wait().unwrap().is_none(), "it has ended");
                std::thread::yield_now();
            }
            let pid = gateway.0.id().to_string();
            let kill = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
            assert!(kill.unwrap().success());
        }
        for (signal, folder, gateway) in &mut started {
            assert_eq!(gateway.0.wait().unwrap().code(), Some(0), "{signal}");
            assert!(folder.join("ended").exists(), "{signal}: the server still runs");
        }
    }
}
