//! The phases of a run.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mrtr::Secret;
use mrtr_testkit::free_ports;
use mrtr_testkit::random::Random;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::clients::Callers;
use super::database::{self, Database};
use super::events::{Done, World, ring};
use super::faults::{Faults, Kind};
use super::invariants::{Run, report};
use super::link::Link;
use super::record::now;
use crate::fleet::{Fleet, Program};
use crate::ledger::Ledger;
use crate::{Result, USAGE, value};

/// The lease of tasks.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

const REPLICAS: usize = 4;

/// The replica that is neither killed nor frozen, so that its memory can be observed.
pub(crate) const WITNESS: usize = 0;

/// Longest time in which all tasks end when there are no faults any more.
const END_TIMEOUT: Duration = Duration::from_mins(1);

struct Options {
    dir: PathBuf,
    time: Duration,
    seed: u64,
    callers: u64,
}

impl Options {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let time = Duration::from_mins(2);
        let mut options = Self { dir: PathBuf::new(), time, seed: 0, callers: 64 };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--dir" => options.dir = value(&arg, &mut args)?,
                "--seconds" => options.time = Duration::from_secs(value(&arg, &mut args)?),
                "--seed" => options.seed = value(&arg, &mut args)?,
                "--callers" => options.callers = value(&arg, &mut args)?,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

/// Sockets in a folder with a short name: the path of a socket has at most 108 bytes.
struct Sockets(PathBuf);

impl Sockets {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("mrtr-chaos-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the scenario. Returns true if all guarantees hold.
pub(crate) async fn run(args: impl Iterator<Item = String>) -> Result<bool> {
    let options = Options::read(args)?;
    let _ = fs::remove_dir_all(&options.dir);
    fs::create_dir_all(&options.dir)?;
    let sockets = Sockets::new()?;
    let database = Database::start().await?;
    let (config, keys) = (database.config(), vec![Secret::generate()?]);
    let world = start(&options.dir, &sockets.0, database, &keys).await?;
    println!(
        "{REPLICAS} replicas, PostgreSQL, {} callers, {} s, seed {}",
        options.callers,
        options.time.as_secs(),
        options.seed
    );
    let begun = Instant::now();
    let callers = Callers::new(&world.fleet.ports, options.seed);
    let mut orders = JoinSet::new();
    for nth in 0..options.callers {
        orders.spawn(Arc::clone(&callers).order(nth));
    }
    orders.spawn(Arc::clone(&callers).steal());
    orders.spawn(Arc::clone(&callers).look_again());

    let mut memory = Vec::new();
    let mut calm_until = 0.0;
    {
        let events = async {
            let (random, time) = (&mut Random::new(options.seed), options.time);
            world.deploy(random, begun, time * 2 / 5).await?;
            calm_until = now();
            world.back_up().await?;
            world.break_things(random, begun, time * 13 / 20).await?;
            world.restore().await?;
            world.break_things(random, begun, time).await
        };
        // None of these ends without an error.
        let rotation = world.rotate(keys, options.time / 8);
        let cuts = world.cut(Random::new(options.seed.wrapping_add(1)));
        tokio::select! {
            ended = events => ended?,
            failed = rotation => failed?,
            failed = cuts => failed?,
            () = watch(&world, &callers, begun, &mut memory) => {}
            () = database::watch(config, &world.faults) => {}
        }
    }
    let ended = finish(&callers, orders, options.callers).await?;
    for at in 0..world.fleet.len() {
        world.fleet.hold(at).await?.drain().await?;
    }

    let run = Run {
        calls: callers.calls(),
        entries: Ledger::read(&Fleet::ledger(&options.dir))?,
        faults: world.faults.all(),
        calm_until,
        ended,
        memory,
        foreign: &callers.foreign,
        world: &world,
    };
    let (text, kept) = report(&run);
    println!("\n{text}");
    fs::write(options.dir.join("report.md"), text)?;
    Ok(kept)
}

/// Starts the links and the replicas.
async fn start(dir: &Path, sockets: &Path, database: Database, keys: &[Secret]) -> Result<World> {
    let ports = free_ports(REPLICAS)?;
    let program =
        Program { command: "task-replica", options: vec!["--sockets".into(), sockets.into()] };
    let fleet = Arc::new(Fleet::new(&ports, dir, program));
    let (faults, done) = (Arc::<Faults>::default(), Arc::<Done>::default());
    let links = ports.iter().map(|port| Link::start(sockets, *port, database.socket(), &faults));
    let links = links.collect::<Result<_>>()?;
    fleet.rotate(&ring(keys, None)).await?;
    for at in 0..fleet.len() {
        fleet.start(&mut *fleet.hold(at).await?, 1).await?;
    }
    Ok(World { fleet, links, database: Arc::new(Mutex::new(database)), faults, done })
}

/// Lets callers finish, and looks at every task once more. Returns how long it took, or `None` if
/// not all tasks have ended.
async fn finish(
    callers: &Arc<Callers>,
    mut orders: JoinSet<Result>,
    concurrency: u64,
) -> Result<Option<Duration>> {
    let begun = Instant::now();
    callers.stop();
    let all = async {
        while let Some(ended) = orders.join_next().await {
            ended??;
        }
        Ok::<_, crate::BoxError>(())
    };
    // A caller whose task does not end would wait for ever: its task is looked at below.
    if let Ok(ended) = timeout(END_TIMEOUT / 2, all).await {
        ended?;
    }
    orders.shutdown().await;
    let concurrency = usize::try_from(concurrency)?;
    let mut settling = JoinSet::new();
    for nth in 0..concurrency {
        settling.spawn(Arc::clone(callers).settle(nth, concurrency));
    }
    let all = async {
        while let Some(ended) = settling.join_next().await {
            ended??;
        }
        Ok::<_, crate::BoxError>(())
    };
    match timeout(END_TIMEOUT, all).await {
        Ok(ended) => ended.map(|()| Some(begun.elapsed())),
        Err(_) => Ok(None),
    }
}

/// Prints the progress of the run, and records the memory of the witness.
async fn watch(world: &World, callers: &Callers, begun: Instant, memory: &mut Vec<(f64, u64)>) {
    for second in 1_u32.. {
        sleep(Duration::from_secs(1)).await;
        if let Some(kib) = world.fleet.memory(WITNESS) {
            memory.push((now(), kib));
        }
        if second % 10 == 0 {
            let (calls, ended) = callers.progress();
            let count = |kind| world.faults.count(kind);
            eprintln!(
                "{:5.0} s: {calls} calls, {ended} ended, {} killed, {} frozen, {} held, {} crashes of PostgreSQL",
                begun.elapsed().as_secs_f64(),
                count(Kind::Killed),
                count(Kind::Frozen),
                count(Kind::Held),
                count(Kind::Crashed),
            );
            let _ = std::io::stderr().flush();
        }
    }
}
