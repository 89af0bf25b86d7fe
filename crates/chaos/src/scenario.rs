//! The events of a run, and their times.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mrtr::Secret;
use mrtr_testkit::free_ports;
use mrtr_testkit::random::Random;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::balancer::{Balancer, Kind};
use crate::clients::Callers;
use crate::fleet::{Fleet, Program};
use crate::invariants::{Observed, report};
use crate::ledger::Ledger;
use crate::{Result, USAGE, value};

/// Lifetime of a state: longer than any order, and short enough that keys are dropped within a run.
const LIFETIME: Duration = Duration::from_secs(15);

const REPLICAS: usize = 4;

/// The replica that is not restarted once it has its new version, so that its memory can be
/// observed.
const WITNESS: usize = 0;

#[derive(Debug)]
struct Options {
    conf: PathBuf,
    dir: PathBuf,
    balancer: Kind,
    time: Duration,
    seed: u64,
    callers: u64,
    /// A deliberate fault: keys are dropped while their states are still valid.
    retire_early: bool,
    /// A deliberate fault: replicas end at once on SIGTERM.
    ignore_drain: bool,
}

/// Counts of the operations on the fleet.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) drained: AtomicU32,
    pub(crate) killed: AtomicU32,
    pub(crate) rotated: AtomicU32,
}

impl Options {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            conf: PathBuf::new(),
            dir: PathBuf::new(),
            balancer: Kind::Nginx,
            time: Duration::from_mins(2),
            seed: 0,
            callers: 48,
            retire_early: false,
            ignore_drain: false,
        };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--conf" => options.conf = value(&arg, &mut args)?,
                "--dir" => options.dir = value(&arg, &mut args)?,
                "--balancer" => options.balancer = value(&arg, &mut args)?,
                "--seconds" => options.time = Duration::from_secs(value(&arg, &mut args)?),
                "--seed" => options.seed = value(&arg, &mut args)?,
                "--people" => options.callers = value(&arg, &mut args)?,
                "--retire-early" => options.retire_early = true,
                "--ignore-drain" => options.ignore_drain = true,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

/// Runs the scenario. Returns true if all guarantees hold.
pub(crate) async fn run(args: impl Iterator<Item = String>) -> Result<bool> {
    let options = Options::read(args)?;
    let _ = fs::remove_dir_all(&options.dir);
    fs::create_dir_all(&options.dir)?;
    let mut ports = free_ports(REPLICAS + 1)?;
    let front = ports.pop().ok_or("no port")?;

    let program = Program::replica(LIFETIME, options.ignore_drain);
    let fleet = Arc::new(Fleet::new(&ports, &options.dir, program));
    let mut secret = Secret::generate()?;
    fleet.rotate(&format!("active {}\n", secret.to_base64url().as_str())).await?;
    for at in 0..fleet.len() {
        fleet.start(&mut *fleet.hold(at).await?, 1).await?;
    }
    let balancer = Balancer::start(options.balancer, &options.conf, &options.dir, front, &ports)?;
    wait_for(front).await?;

    let (begun, since_1970) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
    println!(
        "{REPLICAS} replicas behind {:?} on 127.0.0.1:{front}, {} callers, {} s, seed {}",
        options.balancer,
        options.callers,
        options.time.as_secs(),
        options.seed
    );
    let callers = Callers::new(format!("http://127.0.0.1:{front}/mcp"), begun);
    let mut orders = JoinSet::new();
    for nth in 0..options.callers {
        orders.spawn(Arc::clone(&callers).order(nth, options.seed));
    }
    orders.spawn(Arc::clone(&callers).steal());

    let done = Done::default();
    let mut memory = Vec::new();
    let mut calm_until = options.time;
    {
        let events = async {
            let mut random = Random::new(options.seed);
            calm(&fleet, &done, &mut random, begun, options.time).await?;
            calm_until = begun.elapsed();
            killing(&fleet, &done, &mut random, begun, options.time).await
        };
        // None of these ends without an error.
        let rotation = rotate(&fleet, &done, &mut secret, options.retire_early);
        let relaying = relay_readiness(&fleet, &balancer);
        let watching = watch(&fleet, &callers, &done, begun, &mut memory);
        tokio::select! {
            ended = events => ended?,
            failed = rotation => failed?,
            failed = relaying => failed?,
            () = watching => {}
        }
    }
    // Every order that was begun runs to its end.
    callers.stop();
    let mut unended = 0;
    let ending = async {
        let relaying = relay_readiness(&fleet, &balancer);
        let all = async {
            while let Some(ended) = orders.join_next().await {
                ended??;
            }
            Ok(())
        };
        tokio::select! { ended = all => ended, failed = relaying => failed }
    };
    match timeout(Duration::from_mins(1), ending).await {
        Ok(ended) => ended?,
        Err(_) => unended = orders.len(),
    }
    for at in 0..fleet.len() {
        fleet.hold(at).await?.drain().await?;
    }
    balancer.stop().await?;

    let observed = Observed {
        calls: callers.calls(),
        unended,
        entries: Ledger::read(&Fleet::ledger(&options.dir))?,
        served: Balancer::log(&options.dir)?,
        calm_until: calm_until.as_secs_f64(),
        began_at: since_1970.as_secs_f64(),
        memory,
        foreign: &callers.foreign,
        done: &done,
    };
    let (text, kept) = report(&observed);
    println!("\n{text}");
    fs::write(options.dir.join("report.md"), text)?;
    Ok(kept)
}

async fn wait_for(port: u16) -> Result {
    for _ in 0..100 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Err("the load balancer does not listen: see balancer.stderr and error.log".into())
}

/// Drains and restarts replicas, one at a time. After a fifth of the run, restarts them one after
/// the other with the next version of the tool.
async fn calm(
    fleet: &Fleet,
    done: &Done,
    random: &mut Random,
    begun: Instant,
    time: Duration,
) -> Result {
    let (mut version, mut next) = (1, Vec::new());
    loop {
        sleep(Duration::from_millis(300 + random.below(700))).await;
        let elapsed = begun.elapsed();
        if version == 1 && elapsed >= time / 5 {
            (version, next) = (2, (0..fleet.len()).rev().collect());
        }
        if next.is_empty() && version == 2 && elapsed >= time / 2 {
            return Ok(());
        }
        let at = match next.pop() {
            Some(at) => at,
            None if version == 1 => usize::try_from(random.below(fleet.len() as u64))?,
            None => any_but_the_witness(fleet, random)?,
        };
        let mut replica = fleet.hold(at).await?;
        replica.drain().await?;
        done.drained.fetch_add(1, Ordering::Relaxed);
        fleet.start(&mut replica, version).await?;
    }
}

/// Returns the index of a random replica other than the witness, which is the first.
fn any_but_the_witness(fleet: &Fleet, random: &mut Random) -> Result<usize> {
    Ok(WITNESS + 1 + usize::try_from(random.below(fleet.len() as u64 - 1))?)
}

/// Kills replicas, sometimes several at a time, and restarts them after a short time.
async fn killing(
    fleet: &Arc<Fleet>,
    done: &Done,
    random: &mut Random,
    begun: Instant,
    time: Duration,
) -> Result {
    let mut coming = JoinSet::new();
    while begun.elapsed() < time {
        sleep(Duration::from_millis(300 + random.below(1200))).await;
        let at = any_but_the_witness(fleet, random)?;
        let away = Duration::from_millis(100 + random.below(900));
        done.killed.fetch_add(1, Ordering::Relaxed);
        let fleet = Arc::clone(fleet);
        coming.spawn(async move {
            let mut replica = fleet.hold(at).await?;
            replica.kill().await?;
            sleep(away).await;
            fleet.start(&mut replica, 2).await
        });
    }
    while let Some(came) = coming.join_next().await {
        came??;
    }
    Ok(())
}

/// Repeats the three phases of a key rotation.
async fn rotate(fleet: &Fleet, done: &Done, active: &mut Secret, early: bool) -> Result {
    loop {
        let next = Secret::generate()?;
        let (old, new) = (active.to_base64url(), next.to_base64url());
        let (old, new) = (old.as_str(), new.as_str());
        fleet.rotate(&format!("active {old}\nstaged {new}\n")).await?;
        sleep(Duration::from_millis(300)).await;
        fleet.rotate(&format!("active {new}\nretiring {old}\n")).await?;
        done.rotated.fetch_add(1, Ordering::Relaxed);
        if !early {
            sleep(LIFETIME + Duration::from_secs(1)).await;
        }
        fleet.rotate(&format!("active {new}\n")).await?;
        *active = next;
        sleep(Duration::from_millis(300)).await;
    }
}

/// Polls replicas for readiness and updates the configuration of a load balancer that does not
/// poll, as an orchestrator would.
async fn relay_readiness(fleet: &Fleet, balancer: &Balancer) -> Result {
    let mut known = Vec::new();
    loop {
        sleep(Duration::from_millis(100)).await;
        let mut ready = Vec::new();
        for at in 0..fleet.len() {
            ready.push(fleet.is_ready(at).await);
        }
        if balancer.needs_readiness() && ready != known && ready.contains(&true) {
            balancer.set_ready(&ready)?;
            known = ready;
        }
    }
}

/// Prints the progress of the run, and records the memory of the witness.
async fn watch(
    fleet: &Fleet,
    callers: &Callers,
    done: &Done,
    begun: Instant,
    memory: &mut Vec<(f64, u64)>,
) {
    for second in 1_u32.. {
        sleep(Duration::from_secs(1)).await;
        if let Some(kib) = fleet.memory(WITNESS) {
            memory.push((begun.elapsed().as_secs_f64(), kib));
        }
        if second % 10 == 0 {
            let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
            eprintln!(
                "{second:5} s: {} orders, {} drained, {} killed, {} rotations",
                callers.ended(),
                count(&done.drained),
                count(&done.killed),
                count(&done.rotated)
            );
            let _ = std::io::stderr().flush();
        }
    }
}
