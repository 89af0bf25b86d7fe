//! Users who log in as `alice` and consent: by HTTP alone, or with a browser.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use mrtr::auth::client::Loopback;
use reqwest::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use url::Url;

use crate::{Result, causes};

/// The most requests of a login.
const MAX_REQUESTS: usize = 20;

/// A user without a browser, who fills in the forms of the authorization server.
#[derive(Clone, Default)]
pub(crate) struct User {
    /// The scopes of the pages that the user has seen.
    scopes: Arc<Mutex<Vec<String>>>,
}

impl User {
    pub(crate) fn agent(&self) -> Loopback {
        let scopes = Arc::clone(&self.scopes);
        Loopback::new(move |page| {
            let shown = page.scopes().to_string();
            scopes.lock().unwrap_or_else(PoisonError::into_inner).push(shown);
            let url = page.url().clone();
            tokio::spawn(async move {
                if let Err(error) = log_in(url).await {
                    tracing::error!("the user cannot log in: {}", causes(&*error));
                }
            });
            Ok(())
        })
    }

    /// Returns the scopes of the pages that the user has seen.
    pub(crate) fn scopes(&self) -> Vec<String> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Follows the redirects from an authorization page to the callback.
async fn log_in(mut url: Url) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    let mut cookies = BTreeMap::new();
    let mut form = None;
    for _ in 0..MAX_REQUESTS {
        let request = match form.take() {
            None => http.get(url.clone()),
            Some(form) => http
                .post(url.clone())
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body::<&str>(form),
        };
        let cookie = cookies.iter().map(|(name, value)| format!("{name}={value}"));
        let cookie = cookie.collect::<Vec<String>>().join("; ");
        let response = request.header(COOKIE, cookie).send().await?;
        for cookie in response.headers().get_all(SET_COOKIE) {
            let pair = cookie.to_str()?.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').ok_or("a cookie without value")?;
            cookies.insert(name.to_owned(), value.to_owned());
        }
        if let Some(location) = response.headers().get(LOCATION) {
            url = url.join(location.to_str()?)?;
            continue;
        }
        let is_callback = url.path() == "/callback";
        let page = response.error_for_status()?.text().await?;
        if is_callback {
            return Ok(());
        }
        // The page has one form, for its own address.
        let is_login = page.contains(r#"name="login""#);
        form = Some(if is_login { "prompt=login&login=alice" } else { "prompt=consent" });
    }
    Err("too many requests".into())
}

/// A user with a browser: a process of its own, until this value is closed or dropped.
pub(crate) struct Browser {
    process: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pages: UnboundedReceiver<Url>,
    opener: UnboundedSender<Url>,
}

impl Browser {
    pub(crate) async fn start(node: &Path, folder: &Path, chromium: &Path) -> Result<Self> {
        let mut command = Command::new(node);
        command.arg(folder.join("browser.mjs")).arg(chromium).kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = process.stdin.take().ok_or("it has no stdin")?;
        let stdout = process.stdout.take().ok_or("it has no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.next_line().await?;
        if line.as_deref() != Some("ready") {
            return Err(format!("the browser printed {line:?}").into());
        }
        let (opener, pages) = unbounded_channel();
        Ok(Self { process, stdin, lines, pages, opener })
    }

    pub(crate) fn agent(&self) -> Loopback {
        let opener = self.opener.clone();
        Loopback::new(move |page| opener.send(page.url().clone()).map_err(io::Error::other))
    }

    /// Opens the next page, logs in, consents, and returns the text of the last page.
    pub(crate) async fn log_in(&mut self) -> Result<String> {
        let url = self.pages.recv().await.ok_or("no page")?;
        self.stdin.write_all(format!("{url}\n").as_bytes()).await?;
        Ok(self.lines.next_line().await?.ok_or("the browser has ended")?)
    }

    /// Closes the browser, which deletes its profile.
    pub(crate) async fn close(mut self) -> Result {
        drop(self.stdin);
        self.process.wait().await?;
        Ok(())
    }
}
