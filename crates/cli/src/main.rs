//! `mrtr`: calls Model Context Protocol servers from the command line, answers their questions, and
//! serves them as one.

mod answers;
mod bundle;
mod call;
mod connect;
mod dev;
mod discover;
mod failure;
mod gateway;
mod install;
mod interactive;
mod login;
mod new;
mod options;
mod output;
mod server_info;
mod server_json;
mod signals;
mod terminal_mode;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;

use crate::failure::{Failure, Result};
use crate::options::{Command, Options};
use crate::terminal_mode::TerminalMode;

/// The time that tasks and threads have to end at the end of the program.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let options = Options::parse();
    let mode = Arc::new(TerminalMode::save());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("mrtr: {error}"));
            return ExitCode::from(4);
        }
    };
    let done = runtime.block_on(async {
        tokio::select! {
            biased;
            done = execute(&options) => done,
            code = signals::received(&options.command, &mode) => Ok(ExitCode::from(code)),
        }
    });
    // Drops the tasks, of which one may still have to kill a server. A prompt may block a thread at
    // the terminal although its call has ended.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    let done = done.and_then(|code| match output::error() {
        None => Ok(code),
        Some(error) => Err(Failure { code: 1, message: format!("standard output: {error}") }),
    });
    match done {
        Ok(code) => code,
        Err(Failure { code, message }) => {
            output::note(&format!("mrtr: {}", mrtr::terminal::sanitize(&message)));
            ExitCode::from(code)
        }
    }
}

async fn execute(options: &Options) -> Result<ExitCode> {
    match &options.command {
        Command::Discover(server) => discover::discover(server, options.json).await,
        Command::Tools(server) => discover::tools(server, options.json).await,
        Command::Call(call) => call::run(call, options.json).await,
        Command::Cancel(cancel) => call::cancel(cancel, options.json).await,
        Command::Login(login) => login::login(login, options.json).await,
        Command::Logout { url } => login::logout(url, options.json).await,
        Command::Whoami { url } => login::whoami(url, options.json).await,
        Command::Gateway(gateway) => gateway::run(gateway).await,
        Command::Dev(dev) => dev::run(dev).await,
        Command::New { path } => new::run(path, options.json),
        Command::Install(install) => install::run(install, options.json),
        Command::Bundle(bundle) => bundle::run(bundle, options.json).await,
        Command::ServerJson(publish) => server_json::run(publish).await,
        Command::Keygen { state } => keygen(state, options.json),
    }
}

fn keygen(state: &str, json: bool) -> Result<ExitCode> {
    let secret = mrtr_codec::Secret::generate()
        .map_err(|error| Failure { code: 1, message: error.to_string() })?;
    let secret = secret.to_base64url();
    if json {
        output::json(&serde_json::json!({ "state": state, "secret": *secret }));
    } else {
        output::line(&format!("{state} {}", *secret));
    }
    Ok(ExitCode::SUCCESS)
}
