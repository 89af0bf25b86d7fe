//! The events of a run, and their times.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::try_join_all;
use mrtr_testkit::random::Random;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::balancer::{Balancer, Kind};
use crate::clients::{Call, Callers};
use crate::fleet::{Fleet, Program};
use crate::gateway::{self, Lost};
use crate::invariants::{Observed, report};
use crate::ledger::{Entry, Ledger};
use crate::service::{Done, LIFETIME, Service, WITNESS};
use crate::workload::TOOL;
use crate::{Result, USAGE, value};

/// The upstream servers. Their names are also the prefixes of their tools.
const UPSTREAMS: [&str; 2] = ["east", "west"];

#[derive(Debug)]
struct Options {
    conf: PathBuf,
    dir: PathBuf,
    balancer: Kind,
    time: Duration,
    seed: u64,
    callers: u64,
    /// Callers call two servers through replicas of a gateway.
    gateway: bool,
    /// A deliberate fault: keys are dropped while their states are still valid.
    retire_early: bool,
    /// A deliberate fault: replicas end at once on SIGTERM.
    ignore_drain: bool,
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
            gateway: false,
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
                "--gateway" => options.gateway = true,
                "--retire-early" => options.retire_early = true,
                "--ignore-drain" => options.ignore_drain = true,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }

    /// Starts all services. The last one is what callers call.
    async fn start(&self) -> Result<Vec<Service>> {
        let balancer = (self.balancer, self.conf.as_path());
        let replica = || Program::replica(LIFETIME, self.ignore_drain);
        if !self.gateway {
            return Ok(vec![Service::start(&self.dir, balancer, 4, replica()).await?]);
        }
        let (mut services, mut gateway) = (Vec::new(), replica());
        for name in UPSTREAMS {
            let service = Service::start(&self.dir.join(name), balancer, 2, replica()).await?;
            gateway = gateway.upstream(name, &service.url());
            services.push(service);
        }
        services.push(Service::start(&self.dir, balancer, 2, gateway).await?);
        Ok(services)
    }

    /// Returns the names of the tools that are called.
    fn tools(&self) -> Vec<String> {
        if !self.gateway {
            return vec![TOOL.to_owned()];
        }
        UPSTREAMS.iter().map(|prefix| format!("{prefix}__{TOOL}")).collect()
    }

    /// Returns the folders of the servers behind the gateway.
    fn upstreams(&self) -> Vec<PathBuf> {
        let names = if self.gateway { &UPSTREAMS[..] } else { &[] };
        names.iter().map(|name| self.dir.join(name)).collect()
    }

    /// Returns the folders of the servers that run the steps.
    fn servers(&self) -> Vec<PathBuf> {
        if self.gateway { self.upstreams() } else { vec![self.dir.clone()] }
    }

    /// Adds to the calls what callers cannot see: what happens between gateways and servers.
    fn complete(&self, calls: &mut [Call]) -> Result {
        if self.gateway {
            let lost: Vec<Lost> = Ledger::read(&Fleet::ledger(&self.dir))?;
            for call in calls {
                gateway::IDENTITY.clone_into(&mut call.identity);
                let of_call = lost.iter().filter(|lost| lost.call == call.id);
                call.lost_upstream = of_call.map(|lost| lost.asked).collect();
            }
        }
        Ok(())
    }
}

/// Runs the scenario. Returns true if all guarantees hold.
pub(crate) async fn run(args: impl Iterator<Item = String>) -> Result<bool> {
    let options = Options::read(args)?;
    let _ = fs::remove_dir_all(&options.dir);
    let services = options.start().await?;
    let front = services.last().ok_or("no service")?;

    let (begun, since_1970) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
    let of_gateway = if options.gateway { " of a gateway to two servers" } else { "" };
    println!(
        "{} replicas{of_gateway} behind {:?} at {}, {} callers, {} s, seed {}",
        front.fleet.len(),
        options.balancer,
        front.url(),
        options.callers,
        options.time.as_secs(),
        options.seed
    );
    let callers = Callers::new(front.url(), options.tools(), begun);
    let mut orders = JoinSet::new();
    for nth in 0..options.callers {
        orders.spawn(Arc::clone(&callers).order(nth, options.seed));
    }
    orders.spawn(Arc::clone(&callers).steal());

    let done = Done::default();
    let mut memory = Vec::new();
    let mut calm_until = options.time;
    {
        let (time, done) = (options.time, &done);
        let random =
            |at: usize, phase: u64| Random::new(options.seed.wrapping_add(phase + 2 * at as u64));
        let all = || services.iter().enumerate();
        let events = async {
            let calm = all().map(|(at, service)| service.calm(done, random(at, 0), begun, time));
            try_join_all(calm).await?;
            calm_until = begun.elapsed();
            let killing =
                all().map(|(at, service)| service.killing(done, random(at, 1), begun, time));
            try_join_all(killing).await
        };
        // None of these ends without an error.
        let rotation =
            try_join_all(services.iter().map(|service| service.rotate(done, options.retire_early)));
        let relaying = try_join_all(services.iter().map(Service::relay_readiness));
        let watching = watch(&front.fleet, &callers, done, begun, &mut memory);
        tokio::select! {
            ended = events => drop(ended?),
            failed = rotation => drop(failed?),
            failed = relaying => drop(failed?),
            () = watching => {}
        }
    }
    // Every order that was begun runs to its end.
    callers.stop();
    let mut unended = 0;
    let ending = async {
        let relaying = try_join_all(services.iter().map(Service::relay_readiness));
        let all = async {
            while let Some(ended) = orders.join_next().await {
                ended??;
            }
            Ok(())
        };
        tokio::select! { ended = all => ended, failed = relaying => failed.map(drop) }
    };
    match timeout(Duration::from_mins(1), ending).await {
        Ok(ended) => ended?,
        Err(_) => unended = orders.len(),
    }
    // Gateways end before their servers.
    for service in services.into_iter().rev() {
        service.stop().await?;
    }

    let mut calls = callers.calls();
    options.complete(&mut calls)?;
    let observed = Observed {
        calls,
        unended,
        entries: read_all(&options.servers(), |dir| Ledger::read::<Entry>(&Fleet::ledger(dir)))?,
        served: Balancer::log(&options.dir)?,
        served_upstream: read_all(&options.upstreams(), Balancer::log)?,
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

/// Reads what the files of several folders have.
fn read_all<T>(dirs: &[PathBuf], read: impl Fn(&Path) -> Result<Vec<T>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for dir in dirs {
        all.extend(read(dir)?);
    }
    Ok(all)
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
