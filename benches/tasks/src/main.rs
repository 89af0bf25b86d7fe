//! Measures tasks: `tasks WHAT [--name value]…` prints one JSON object. `cargo xtask bench tasks` runs it.

mod answers;
mod bare;
mod calls;
mod idle;
mod recorder;
mod recovery;
mod replica;
mod sqlite;
mod steps;
mod waiting;

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::{Client, Config, NoTls};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The arguments of a measurement.
pub struct Args(HashMap<String, String>);

impl Args {
    pub fn get<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T> {
        let text = self.0.get(name).ok_or_else(|| format!("--{name} is missing"))?;
        Ok(text.parse().map_err(|error| format!("--{name} {text}: {error}"))?)
    }

    pub fn seconds(&self, name: &str) -> Result<Duration> {
        Ok(Duration::from_secs_f64(self.get(name)?))
    }

    pub fn database(&self) -> Result<Config> {
        self.get("database")
    }
}

#[tokio::main]
async fn main() -> Result {
    let mut args = std::env::args().skip(1);
    let what = args.next().ok_or("what is to be measured?")?;
    let mut named = HashMap::new();
    while let Some(name) = args.next() {
        let name = name.strip_prefix("--").ok_or("arguments have names")?;
        named.insert(name.to_owned(), args.next().ok_or("a value is missing")?);
    }
    let args = Args(named);
    let measured = match &*what {
        "create" => bare::create(&args).await?,
        "bare" => bare::run(&args).await?,
        "bare-sqlite" => sqlite::run(&args).await?,
        "steps" => steps::run(&args).await?,
        "replica" => return replica::run(&args).await,
        "recovery" => recovery::run(&args).await?,
        "answers" => answers::run(&args).await?,
        "fill" => waiting::fill(&args).await?,
        "claims" => waiting::claims(&args).await?,
        "idle" => idle::run(&args).await?,
        other => return Err(format!("unknown measurement {other:?}").into()),
    };
    println!("{measured}");
    Ok(())
}

/// Opens a connection.
pub async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
