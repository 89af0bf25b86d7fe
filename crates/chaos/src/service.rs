//! A service: replicas behind a load balancer, and what happens to them in a run.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mrtr::Secret;
use mrtr_testkit::free_ports;
use mrtr_testkit::random::Random;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Result;
use crate::balancer::{Balancer, Kind};
use crate::fleet::{Fleet, Program};

/// Lifetime of a state: longer than any order, and short enough that keys are dropped within a run.
pub(crate) const LIFETIME: Duration = Duration::from_secs(15);

/// The replica that is not restarted once it has its new version, so that its memory can be
/// observed.
pub(crate) const WITNESS: usize = 0;

/// Counts of the operations on all services of a run.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) drained: AtomicU32,
    pub(crate) killed: AtomicU32,
    pub(crate) rotated: AtomicU32,
}

/// Extra pause between drains if there are only two replicas: each drain then moves all sessions of
/// legacy clients, which resume their calls after a second.
const SETTLING: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) fleet: Arc<Fleet>,
    balancer: Balancer,
    /// The first key.
    secret: Secret,
}

impl Service {
    /// Starts replicas with the first version of a program, and a load balancer with the
    /// configuration `conf` in front of them. All their files are in `dir`.
    pub(crate) async fn start(
        dir: &Path,
        (kind, conf): (Kind, &Path),
        replicas: usize,
        program: Program,
    ) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let mut ports = free_ports(replicas + 1)?;
        let front = ports.pop().ok_or("no port")?;
        let fleet = Arc::new(Fleet::new(&ports, dir, program));
        let secret = Secret::generate()?;
        fleet.rotate(&format!("active {}\n", secret.to_base64url().as_str())).await?;
        for at in 0..fleet.len() {
            fleet.start(&mut *fleet.hold(at).await?, 1).await?;
        }
        let balancer = Balancer::start(kind, conf, dir, front, &ports)?;
        wait_for(front).await?;
        Ok(Self { fleet, balancer, secret })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.balancer.port)
    }

    pub(crate) async fn stop(self) -> Result {
        for at in 0..self.fleet.len() {
            self.fleet.hold(at).await?.drain().await?;
        }
        self.balancer.stop().await
    }

    /// Drains and restarts replicas, one at a time. After a fifth of the run, restarts them one after
    /// the other with the next version of the program.
    pub(crate) async fn calm(
        &self,
        done: &Done,
        mut random: Random,
        begun: Instant,
        time: Duration,
    ) -> Result {
        let fleet = &self.fleet;
        let settling = if fleet.len() > 2 { Duration::ZERO } else { SETTLING };
        let (mut version, mut next) = (1, Vec::new());
        loop {
            sleep(settling + Duration::from_millis(300 + random.below(700))).await;
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
                None => any_but_the_witness(fleet, &mut random)?,
            };
            let mut replica = fleet.hold(at).await?;
            replica.drain().await?;
            done.drained.fetch_add(1, Ordering::Relaxed);
            fleet.start(&mut replica, version).await?;
        }
    }

    /// Kills replicas, sometimes several at a time, and restarts them after a short time.
    pub(crate) async fn killing(
        &self,
        done: &Done,
        mut random: Random,
        begun: Instant,
        time: Duration,
    ) -> Result {
        let mut restarts = JoinSet::new();
        while begun.elapsed() < time {
            sleep(Duration::from_millis(300 + random.below(1200))).await;
            let at = any_but_the_witness(&self.fleet, &mut random)?;
            let away = Duration::from_millis(100 + random.below(900));
            done.killed.fetch_add(1, Ordering::Relaxed);
            let fleet = Arc::clone(&self.fleet);
            restarts.spawn(async move {
                let mut replica = fleet.hold(at).await?;
                replica.kill().await?;
                sleep(away).await;
                fleet.start(&mut replica, 2).await
            });
        }
        while let Some(restarted) = restarts.join_next().await {
            restarted??;
        }
        Ok(())
    }

    /// Repeats the three phases of a key rotation. Runs until it fails.
    pub(crate) async fn rotate(&self, done: &Done, early: bool) -> Result {
        let mut active = self.secret.to_base64url();
        loop {
            let next = Secret::generate()?.to_base64url();
            let (old, new) = (active.as_str(), next.as_str());
            self.fleet.rotate(&format!("active {old}\nstaged {new}\n")).await?;
            sleep(Duration::from_millis(300)).await;
            self.fleet.rotate(&format!("active {new}\nretiring {old}\n")).await?;
            done.rotated.fetch_add(1, Ordering::Relaxed);
            if !early {
                sleep(LIFETIME + Duration::from_secs(1)).await;
            }
            self.fleet.rotate(&format!("active {new}\n")).await?;
            active = next;
            sleep(Duration::from_millis(300)).await;
        }
    }

    /// Polls replicas for readiness and updates the configuration of a load balancer that does not
    /// poll, as an orchestrator would. Runs until it fails.
    pub(crate) async fn relay_readiness(&self) -> Result {
        let mut known = Vec::new();
        loop {
            sleep(Duration::from_millis(100)).await;
            let mut ready = Vec::new();
            for at in 0..self.fleet.len() {
                ready.push(self.fleet.is_ready(at).await);
            }
            if self.balancer.needs_readiness() && ready != known && ready.contains(&true) {
                self.balancer.set_ready(&ready)?;
                known = ready;
            }
        }
    }
}

/// Returns the index of a random replica other than the witness, which is the first.
fn any_but_the_witness(fleet: &Fleet, random: &mut Random) -> Result<usize> {
    Ok(WITNESS + 1 + usize::try_from(random.below(fleet.len() as u64 - 1))?)
}

async fn wait_for(port: u16) -> Result {
    for _ in 0..100 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Err("the load balancer did not listen in time: see balancer.stderr and error.log".into())
}
