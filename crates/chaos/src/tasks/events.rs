//! The events of a run: deployments, and faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mrtr::Secret;
use mrtr_testkit::random::Random;
use rustix::process::Signal;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::database::Database;
use super::faults::{Faults, Kind};
use super::history::{Outage, Restoration};
use super::link::{Cut, Link};
use super::record::now;
use super::scenario::{LEASE, WITNESS};
use crate::fleet::Fleet;
use crate::{Result, lock};

/// What the events act on.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) links: Vec<Arc<Link>>,
    pub(crate) database: Arc<Mutex<Database>>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) done: Arc<Done>,
}

/// Counts of the operations that are no faults.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) drained: AtomicU32,
    pub(crate) rotated: AtomicU32,
    pub(crate) returned: AtomicU32,
    pub(crate) copied: std::sync::Mutex<Option<Outage>>,
    pub(crate) restored: std::sync::Mutex<Option<Outage>>,
}

impl Done {
    pub(crate) fn restoration(&self) -> Option<Restoration> {
        Some(Restoration { copied: (*lock(&self.copied))?, restored: (*lock(&self.restored))? })
    }

    fn count(counter: &AtomicU32) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns a time between two numbers of milliseconds.
fn between(random: &mut Random, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + random.below(to - from))
}

impl World {
    /// Drains and restarts replicas, one at a time, and deploys the next version of the tools.
    pub(crate) async fn deploy(
        &self,
        random: &mut Random,
        begun: Instant,
        until: Duration,
    ) -> Result {
        let (mut version, mut next) = (1, Vec::new());
        while begun.elapsed() < until || !next.is_empty() {
            sleep(between(random, 300, 1000)).await;
            if version == 1 && begun.elapsed() >= until / 2 {
                (version, next) = (2, (0..self.fleet.len()).rev().collect());
            }
            let at = match next.pop() {
                Some(at) => at,
                None if version == 1 => usize::try_from(random.below(self.fleet.len() as u64))?,
                None => self.any_but_the_witness(random)?,
            };
            let mut replica = self.fleet.hold(at).await?;
            replica.drain().await?;
            Done::count(&self.done.drained);
            self.fleet.start(&mut replica, version).await?;
        }
        Ok(())
    }

    /// Causes faults until a time.
    pub(crate) async fn break_things(
        &self,
        random: &mut Random,
        begun: Instant,
        until: Duration,
    ) -> Result {
        let mut running = JoinSet::new();
        let mut next_crash = begun.elapsed() + between(random, 2000, 4000);
        while begun.elapsed() < until {
            sleep(between(random, 300, 900)).await;
            let (world, seed) = (self.clone(), random.any());
            let at = self.any_but_the_witness(random)?;
            let link = Arc::clone(self.any_link(random)?);
            if begun.elapsed() >= next_crash {
                next_crash = begun.elapsed() + between(random, 6000, 12_000);
                running.spawn(async move { world.crash(&mut Random::new(seed)).await });
                continue;
            }
            match random.below(10) {
                0..=2 => running.spawn(async move { world.kill(at, &mut Random::new(seed)).await }),
                4 | 5 => {
                    running.spawn(async move { world.drain(at, &mut Random::new(seed)).await })
                }
                6 | 7 => {
                    running.spawn(async move { world.hold(&link, &mut Random::new(seed)).await })
                }
                _ => running.spawn(async move { world.freeze(at, &mut Random::new(seed)).await }),
            };
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// Kills a replica, and starts it again after a short time.
    async fn kill(&self, at: usize, random: &mut Random) -> Result {
        let Some(mut replica) = self.fleet.try_hold(at) else { return Ok(()) };
        let from = now();
        replica.kill().await?;
        self.faults.add(Kind::Killed, Some(replica.port()), from, now());
        sleep(between(random, 100, 1000)).await;
        self.fleet.start(&mut replica, self.any_version(random)).await
    }

    async fn drain(&self, at: usize, random: &mut Random) -> Result {
        let Some(mut replica) = self.fleet.try_hold(at) else { return Ok(()) };
        replica.drain().await?;
        Done::count(&self.done.drained);
        self.fleet.start(&mut replica, self.any_version(random)).await
    }

    /// Stops a replica for longer than the lease. Often its connections are held, too, so that
    /// requests that were under way arrive when the lease is over.
    async fn freeze(&self, at: usize, random: &mut Random) -> Result {
        let Some(replica) = self.fleet.try_hold(at) else { return Ok(()) };
        let port = replica.port();
        let link = self.links.iter().find(|link| link.port == port);
        let link = link.filter(|_| random.below(3) > 0);
        let held = now();
        if let Some(link) = link {
            link.hold(true);
            sleep(between(random, 1, 300)).await;
        }
        let from = now();
        replica.signal(Signal::STOP)?;
        sleep(LEASE + between(random, 500, 2500)).await;
        replica.signal(Signal::CONT)?;
        if let Some(link) = link {
            link.hold(false);
            self.faults.add(Kind::Delayed, Some(port), held, now());
        }
        self.faults.add(Kind::Frozen, Some(port), from, now());
        Ok(())
    }

    /// Holds the connections of a replica for longer than the lease.
    async fn hold(&self, link: &Link, random: &mut Random) -> Result {
        let from = now();
        link.hold(true);
        sleep(LEASE + between(random, 500, 2000)).await;
        link.hold(false);
        self.faults.add(Kind::Held, Some(link.port), from, now());
        Ok(())
    }

    /// Kills the server of the store, and starts it again.
    async fn crash(&self, random: &mut Random) -> Result {
        let mut database = self.database.lock().await;
        let from = now();
        database.crash(between(random, 50, 1500)).await;
        self.faults.add(Kind::Crashed, None, from, now());
        Ok(())
    }

    /// Copies the data directory of the store.
    pub(crate) async fn back_up(&self) -> Result {
        let outage = self.database.lock().await.back_up()?;
        self.faults.add(Kind::Copied, None, outage.from, outage.to);
        *lock(&self.done.copied) = Some(outage);
        Ok(())
    }

    /// Lets the server of the store start with the copy of its data directory.
    pub(crate) async fn restore(&self) -> Result {
        let outage = self.database.lock().await.restore()?;
        self.faults.add(Kind::Restored, None, outage.from, outage.to);
        *lock(&self.done.restored) = Some(outage);
        Ok(())
    }

    /// Cuts connections in and around commits.
    pub(crate) async fn cut(&self, mut random: Random) -> Result {
        loop {
            sleep(between(&mut random, 100, 350)).await;
            let cut = match random.below(4) {
                0 | 1 => Cut::Response,
                2 => Cut::Request,
                _ => Cut::Bytes(usize::try_from(random.below(3000))?),
            };
            self.any_link(&mut random)?.arm(cut);
        }
    }

    /// Replaces the active key now and then. Tasks are sealed with all keys of the run, and so is the
    /// copy of the store: none is dropped.
    pub(crate) async fn rotate(&self, mut keys: Vec<Secret>, pause: Duration) -> Result {
        loop {
            sleep(pause).await;
            // A key ring has at most 16 keys.
            if keys.len() == 16 {
                return std::future::pending().await;
            }
            let next = Secret::generate()?;
            self.fleet.rotate(&ring(&keys, Some(&next))).await?;
            keys.push(next);
            self.fleet.rotate(&ring(&keys, None)).await?;
            Done::count(&self.done.rotated);
        }
    }

    fn any_version(&self, random: &mut Random) -> u32 {
        // A deployment that is taken back.
        if random.below(6) > 0 {
            return 2;
        }
        Done::count(&self.done.returned);
        1
    }

    fn any_but_the_witness(&self, random: &mut Random) -> Result<usize> {
        Ok(WITNESS + 1 + usize::try_from(random.below(self.fleet.len() as u64 - 1))?)
    }

    fn any_link(&self, random: &mut Random) -> Result<&Arc<Link>> {
        let at = usize::try_from(random.below(self.links.len() as u64))?;
        Ok(self.links.get(at).ok_or("no link")?)
    }
}

/// Returns a key ring whose last key seals.
pub(crate) fn ring(keys: &[Secret], staged: Option<&Secret>) -> String {
    let text = |kind: &str, key: &Secret| format!("{kind} {}\n", key.to_base64url().as_str());
    let (last, others) =
        keys.split_last().map_or((None, keys), |(last, others)| (Some(last), others));
    let others = others.iter().map(|key| text("retiring", key));
    let staged = staged.map(|key| text("staged", key));
    others.chain(last.map(|key| text("active", key))).chain(staged).collect()
}
