//! A thousand connections at the highest rate that the machine allows, with one of a hundred
//! requests malformed. Measures the memory, descriptors and tasks of a replica before, during and
//! after.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mrtr::Secret;
use mrtr_testkit::free_ports;
use mrtr_testkit::random::Random;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::fleet::{Fleet, Program};
use crate::malformed::{MISTAKES, SLOW, mistake, slow};
use crate::wire::{Connection, Head, body};
use crate::{Result, lock, value};

/// Number of subscriptions that are open together before their clients disconnect. At least five
/// times in each half of a run, so that each half opens the default limit of requests in flight
/// (10,000): slots that are not returned would show.
const LISTENERS: usize = 2_000;

/// Number of subscriptions that are opened before their responses are read. The kernel queues 1,024
/// connections that the server has not accepted yet, and may reset more: the callers open 1,000.
const BURST: usize = 20;

/// Maximum growth of the allocated memory, in bytes, between the ends of the two halves of a run,
/// each measured after all clients have disconnected. The runtime retains memory for the most
/// connections that were open at once: 4.1 to 6.7 MB in 25 runs, whether of 15 s or of 100 s. A leak
/// of eight bytes per request exceeds the bound after 524,288 requests.
///
/// The memory of the process is reported only: what the allocator retains depends on how many
/// requests happened to be open at once.
const GROWTH: u64 = 4 << 20;

#[derive(Debug, Default)]
struct Load {
    port: u16,
    over: AtomicBool,
    /// Number of well-formed requests.
    answered: AtomicU64,
    /// By kind of request: the number of expected outcomes, and the first unexpected one.
    outcomes: Mutex<BTreeMap<&'static str, (u64, Option<String>)>>,
    /// Times of one request in sixteen.
    times: Mutex<Vec<Duration>>,
    /// A call of some caller that continues with a state.
    continued: Mutex<Value>,
}

impl Load {
    fn note(&self, what: &'static str, outcome: Result) {
        let mut outcomes = lock(&self.outcomes);
        let (times, wrong) = outcomes.entry(what).or_default();
        match outcome {
            Ok(()) => *times += 1,
            Err(error) => drop(wrong.get_or_insert_with(|| error.to_string())),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// The resources that a process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// The allocated memory.
    bytes: u64,
    /// The memory of the process.
    kib: u64,
    descriptors: usize,
    tasks: usize,
}

pub(crate) async fn run(mut args: impl Iterator<Item = String>) -> Result<bool> {
    let (mut seconds, mut connections, mut dir) = (300_u64, 1_000_u64, PathBuf::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => seconds = value(&arg, &mut args)?,
            "--connections" => connections = value(&arg, &mut args)?,
            "--dir" => dir = value(&arg, &mut args)?,
            other => return Err(format!("`load` has no option {other:?}").into()),
        }
    }
    raise_descriptor_limit(connections + LISTENERS as u64 + 1_000)?;
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let port = free_ports(1)?.pop().ok_or("no port")?;
    let fleet = Fleet::new(&[port], &dir, Program::replica(Duration::from_mins(10), false));
    fleet.rotate(&format!("active {}\n", Secret::generate()?.to_base64url().as_str())).await?;
    fleet.start(&mut *fleet.hold(0).await?, 2).await?;

    let none = json!({ "name": "order", "arguments": { "call": "x" }, "requestState": "" });
    let load = Arc::new(Load { port, continued: Mutex::new(none), ..Load::default() });
    // What the first request allocates once is not a leak.
    let connection = Connection::open(port).await?;
    Box::pin(caller(0, connection, Arc::clone(&load), 100)).await?;
    let before = held(&fleet).await?;
    println!("one replica on 127.0.0.1:{port}, {connections} connections, {seconds} s");
    let mut most = before;
    let mut elapsed = wave(&fleet, &load, connections, 0..seconds / 2, &mut most).await?;
    let halfway = settled(&fleet, before).await?;
    elapsed += wave(&fleet, &load, connections, seconds / 2..seconds, &mut most).await?;
    let after = settled(&fleet, before).await?;
    fleet.hold(0).await?.drain().await?;
    let (text, kept) = report(&load, elapsed, [before, halfway, most, after]);
    println!("\n{text}");
    fs::write(dir.join("report.md"), text)?;
    Ok(kept)
}

/// Sends all kinds of requests for some seconds, and disconnects. Raises `most` to what the replica
/// held meanwhile, and returns how long it sent requests.
async fn wave(
    fleet: &Fleet,
    load: &Arc<Load>,
    connections: u64,
    seconds: Range<u64>,
    most: &mut Held,
) -> Result<Duration> {
    let begun = Instant::now();
    load.over.store(false, Ordering::Relaxed);
    let mut tasks = JoinSet::new();
    // Each wave has other callers, with other requests.
    let first = seconds.start * connections;
    for nth in first..first + connections {
        // One after the other, for the reason of `BURST`.
        let connection = Connection::open(load.port).await?;
        tasks.spawn(caller(nth, connection, Arc::clone(load), u64::MAX));
    }
    for which in 0..SLOW.len() {
        tasks.spawn(send_slowly(which, Arc::clone(load)));
    }
    tasks.spawn(listeners(Arc::clone(load)));
    for second in seconds {
        sleep(Duration::from_secs(1)).await;
        let now = held(fleet).await?;
        most.bytes = most.bytes.max(now.bytes);
        most.kib = most.kib.max(now.kib);
        most.descriptors = most.descriptors.max(now.descriptors);
        most.tasks = most.tasks.max(now.tasks);
        if (second + 1) % 10 == 0 {
            let answered = load.answered.load(Ordering::Relaxed);
            eprintln!(
                "{:5} s: {answered} answered, {} bytes, {} KiB, {} descriptors, {} tasks",
                second + 1,
                now.bytes,
                now.kib,
                now.descriptors,
                now.tasks
            );
        }
    }
    let elapsed = begun.elapsed();
    load.over.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(elapsed)
}

/// Raises the limit of this process, which its child processes inherit.
fn raise_descriptor_limit(needed: u64) -> Result {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(format!("needs {needed} descriptors: raise the limit (`ulimit -n`)").into());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit })?)
}

async fn held(fleet: &Fleet) -> Result<Held> {
    let kib = fleet.memory(0).ok_or("the replica is not running")?;
    let mut replica = fleet.hold(0).await?;
    let (tasks, bytes) = replica.usage().await?;
    Ok(Held { bytes, kib, descriptors: replica.descriptors()?, tasks })
}

/// Returns the resources after all clients have disconnected and the replica has noticed, or after
/// a minute.
async fn settled(fleet: &Fleet, before: Held) -> Result<Held> {
    let mut now = held(fleet).await?;
    for _ in 0..60 {
        if now.descriptors <= before.descriptors && now.tasks <= before.tasks {
            break;
        }
        sleep(Duration::from_secs(1)).await;
        now = held(fleet).await?;
    }
    Ok(now)
}

/// Sends calls, lists and orders on one connection, and sometimes a malformed request on another.
async fn caller(nth: u64, mut connection: Connection, load: Arc<Load>, most: u64) -> Result {
    let name = format!("caller-{nth}");
    let mut random = Random::new(nth);
    let text = format!("{nth} ").repeat(20);
    let echo = json!({ "name": "echo", "arguments": { "text": text } });
    let echo = (Head::new(&name, "tools/call", Some("echo")), body("tools/call", echo));
    let list = (Head::new(&name, "tools/list", None), body("tools/list", json!({})));
    let order = Head::new(&name, "tools/call", Some("order"));
    let mut call = json!({ "name": "order", "arguments": { "call": format!("{nth}-0") } });
    for request in 0..most {
        if load.is_over() {
            break;
        }
        if random.below(100) == 0 {
            let foreign = lock(&load.continued).clone();
            let mistake = mistake(random.below(MISTAKES), &name, &foreign);
            load.note(mistake.name, mistake.make(load.port).await);
            continue;
        }
        let begun = Instant::now();
        let (what, outcome) = match random.below(10) {
            0 => ("a list", good(&mut connection, &list.0, &list.1).await),
            1..=3 => (
                "a round of an order",
                good(&mut connection, &order, &body("tools/call", call.clone())).await,
            ),
            _ => ("a call", good(&mut connection, &echo.0, &echo.1).await),
        };
        if request % 16 == 0 {
            lock(&load.times).push(begun.elapsed());
        }
        let outcome = outcome.and_then(|result| match what {
            "a call" if result["content"][0]["text"] != *text => {
                Err("the answer to another request".into())
            }
            "a round of an order" => {
                next_request(&mut call, &result, &format!("{nth}-{request}"), &load);
                Ok(())
            }
            _ => Ok(()),
        });
        if outcome.is_err() {
            connection = Connection::open(load.port).await?;
        }
        load.answered.fetch_add(1, Ordering::Relaxed);
        load.note(what, outcome);
    }
    Ok(())
}

/// Returns the result of a well-formed request.
async fn good(connection: &mut Connection, head: &Head, body: &[u8]) -> Result<Value> {
    let (status, body) = connection.send("POST", head, body).await?;
    let mut answer: Value = serde_json::from_slice(&body)?;
    if status == 200 && answer["result"].is_object() {
        return Ok(answer["result"].take());
    }
    Err(format!("{status} and {}", answer["error"]).into())
}

/// Answers the questions of a result, or begins another order.
fn next_request(call: &mut Value, result: &Value, next: &str, load: &Load) {
    let Some(state) = result["requestState"].as_str() else {
        *call = json!({ "name": "order", "arguments": { "call": next } });
        return;
    };
    let keys = result["inputRequests"].as_object().into_iter().flatten().map(|(key, _)| key);
    let answer = json!({ "action": "accept", "content": { "text": "x" } });
    let answers: serde_json::Map<_, _> = keys.map(|key| (key.clone(), answer.clone())).collect();
    call["inputResponses"] = answers.into();
    call["requestState"] = json!(state);
    lock(&load.continued).clone_from(call);
}

async fn send_slowly(which: usize, load: Arc<Load>) -> Result {
    let name = SLOW.get(which).copied().unwrap_or_default();
    while !load.is_over() {
        load.note(name, slow(which, load.port).await);
    }
    Ok(())
}

/// Opens many subscriptions and disconnects without closing them.
async fn listeners(load: Arc<Load>) -> Result {
    let head = Head::new("listener", "subscriptions/listen", None);
    let body =
        body("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    let request = format!("{}Content-Length: {}\r\n\r\n", head.text("POST"), body.len());
    for time in 0.. {
        if time >= 5 && load.is_over() {
            break;
        }
        let mut all = Vec::new();
        while all.len() < LISTENERS {
            let first = all.len();
            for _ in 0..BURST {
                let mut connection = Connection::open(load.port).await?;
                connection.stream.write_all(request.as_bytes()).await?;
                connection.stream.write_all(&body).await?;
                all.push(connection);
            }
            for connection in all.iter_mut().skip(first) {
                let (status, _) = connection.response().await?;
                let outcome = if status == 200 { Ok(()) } else { Err(format!("{status}").into()) };
                load.note("an abandoned subscription", outcome);
            }
        }
    }
    Ok(())
}

fn report(load: &Load, elapsed: Duration, held: [Held; 4]) -> (String, bool) {
    let [before, halfway, most, after] = held;
    let mut text =
        String::from("| sent | expected outcomes | first unexpected outcome |\n|---|---|---|\n");
    let mut kept = true;
    for (what, (times, wrong)) in &*lock(&load.outcomes) {
        kept &= wrong.is_none() && *times > 0;
        let wrong = wrong.as_deref().unwrap_or("none").replace('|', "\\|");
        let _ = writeln!(text, "| {what} | {times} | {wrong} |");
    }
    let mut times = std::mem::take(&mut *lock(&load.times));
    times.sort_unstable();
    let at =
        |hundredth: usize| times.get(times.len() * hundredth / 100).copied().unwrap_or_default();
    let answered = load.answered.load(Ordering::Relaxed);
    let rate = answered / elapsed.as_secs().max(1);
    let _ = writeln!(
        text,
        "\n{answered} well-formed requests in {:.0} s, {rate} per second; median {:.1?}, 99th percentile {:.1?}\n",
        elapsed.as_secs_f64(),
        at(50),
        at(99)
    );
    text +=
        "| resource | before | after the first half | maximum | after |\n|---|---|---|---|---|\n";
    let mut row = |name, of: fn(&Held) -> u64| {
        let [before, halfway, most, after] = [before, halfway, most, after].map(|held| of(&held));
        let _ = writeln!(text, "| {name} | {before} | {halfway} | {most} | {after} |");
    };
    row("allocated bytes", |held| held.bytes);
    row("memory in KiB", |held| held.kib);
    row("descriptors", |held| held.descriptors as u64);
    row("tasks", |held| held.tasks as u64);
    let leaks = [
        (after.bytes > halfway.bytes + GROWTH).then_some("memory"),
        (after.descriptors.max(halfway.descriptors) > before.descriptors).then_some("descriptors"),
        (after.tasks.max(halfway.tasks) > before.tasks).then_some("tasks"),
    ];
    let leaks: Vec<_> = leaks.into_iter().flatten().collect();
    let _ = match leaks.as_slice() {
        [] => writeln!(text, "\nleaks: none"),
        some => writeln!(text, "\nleaks: {}", some.join(", ")),
    };
    kept &= leaks.is_empty();
    let _ = writeln!(text, "{}", if kept { "load: passed" } else { "load: failed" });
    (text, kept)
}
