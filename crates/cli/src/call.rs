//! The commands `call` and `cancel`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mrtr::client::{CallEvent, CallOutcome, PendingCall};
use mrtr::http::HttpConnection;
use mrtr::schema::PROTOCOL_VERSION;
use mrtr::schema::elicitation::ElicitParams;
use mrtr::schema::input::{InputRequest, InputResponses};
use mrtr::schema::tasks::Task;
use mrtr::schema::tool::CallToolResult;
use mrtr::schema::uri;
use mrtr::terminal::sanitize_line;
use mrtr::{CallError, Client};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::answers::{Answers, read_json};
use crate::failure::{Failure, Result};
use crate::interactive;
use crate::options::{Call, Cancel};
use crate::output::{self, dim};

pub(crate) async fn run(call: &Call, json: bool) -> Result<ExitCode> {
    let answers = call.answers.as_deref().map(Answers::read).transpose()?.unwrap_or_default();
    let paused = call.resume.as_deref().map(read_json::<PendingCall>).transpose()?;
    let client = client(call, answers.clone())?;
    if let Some(file) = call.pause.as_ref().or(call.detach.as_ref()) {
        // The file is created first, so that a bad path fails before the request is sent.
        let file = PauseFile::create(file)?;
        // A call that cannot be paused must not begin. The first request tells the revision.
        if client.protocol_version().is_none() {
            client.discover().await?;
        }
        check_can_be_paused(client.protocol_version())?;
        let mut outcome = match paused {
            Some(paused) => {
                let answered = answered(&paused, &answers)?;
                client.resume(paused, &answered).await?
            }
            None => client.begin_tool(call.tool(), call.arguments()?).await?,
        };
        follow(&client, &mut outcome, call).await?;
        return match outcome {
            CallOutcome::Complete(result) => Ok(finish(&result, json)),
            CallOutcome::InputRequired(paused) | CallOutcome::Working(paused) => {
                suspend(&paused, file, json)
            }
        };
    }
    let result = match paused {
        Some(paused) => client.finish(paused).await?,
        None => client.call_tool(call.tool(), call.arguments()?).await?,
    };
    Ok(finish(&result, json))
}

/// Follows a task until it ends or asks, unless it is to be left at once.
///
/// If it takes longer than the timeout, or a request about it fails, it can be resumed: the server
/// continues with it.
async fn follow(
    client: &Client<HttpConnection>,
    outcome: &mut CallOutcome<CallToolResult>,
    call: &Call,
) -> Result<()> {
    let follow = async {
        while let (CallOutcome::Working(task), None) = (&*outcome, &call.detach) {
            *outcome = client.resume(task.clone(), &InputResponses::default()).await?;
        }
        Ok::<_, CallError>(())
    };
    let why = match timeout(Duration::from_secs(call.server.timeout), follow).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => {
            let has_ended =
                error.is_task_failed() || error.is_task_cancelled() || error.is_task_expired();
            let failure = Failure::from(error);
            if has_ended {
                return Err(failure);
            }
            failure.message
        }
        Err(_) => format!("the task has not ended within {} s", call.server.timeout),
    };
    output::note(&sanitize_line(&why));
    Ok(())
}

/// Cancels the task of a suspended call.
pub(crate) async fn cancel(cancel: &Cancel, json: bool) -> Result<ExitCode> {
    let call = read_json::<PendingCall>(&cancel.file)?;
    let Some(task_id) = call.task_id() else {
        let file = cancel.file.display();
        let message = format!("{file}: the call is not a task: the server is not processing it");
        return Err(Failure::usage(message));
    };
    cancel.server.client()?.with_tasks().build().cancel(&call).await?;
    if json {
        output::json(&serde_json::json!({ "taskId": task_id }));
    } else {
        output::note("The server was asked to cancel the task.");
    }
    Ok(ExitCode::SUCCESS)
}

/// A call on the session of a legacy server ends with this process.
fn check_can_be_paused(version: Option<&str>) -> Result<()> {
    match version {
        Some(version) if version != PROTOCOL_VERSION => Err(Failure::usage(format!(
            "the server speaks MCP {version}: a call on its session cannot be paused; leave out --pause and --detach"
        ))),
        _ => Ok(()),
    }
}

impl Call {
    fn tool(&self) -> &str {
        self.tool.as_deref().unwrap_or_default()
    }

    fn arguments(&self) -> Result<Box<RawValue>> {
        match &self.arguments {
            Some(text) => interactive::arguments_object(text)
                .map_err(|reason| Failure::usage(format!("--arguments: {reason}"))),
            None => interactive::named_arguments(self.args.iter().map(String::as_str)),
        }
    }
}

/// Creates a client that answers from the file, and otherwise asks at the terminal.
fn client(call: &Call, answers: Answers) -> Result<Client<HttpConnection>> {
    let host = uri::host(&call.server.url).to_owned();
    let client = interactive::answer(call.server.client()?, host, answers);
    let (traces, last_status) = (call.trace, Mutex::new(String::new()));
    let client = client.on_event(move |event| {
        if let CallEvent::TaskUpdated { task, .. } = &event {
            show_status(task, &last_status);
        } else if traces {
            trace(&event);
        }
    });
    Ok(client.build())
}

/// Shows the status of a task, if it is another one than before.
fn show_status(task: &Task, last: &Mutex<String>) {
    let message = task.status_message.as_deref().map(sanitize_line);
    let message = message.map_or_else(String::new, |message| format!(": {message}"));
    let id = sanitize_line(&task.task_id);
    let status = format!("task {}{message} [{id}]", task.status.as_str());
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if *last != status {
        output::note(&dim(&status));
        *last = status;
    }
}

fn trace(event: &CallEvent<'_>) {
    match event {
        CallEvent::RequestSent(request) => output::note(&dim(&format!(
            "→ {} {} {} (request {})",
            request.round,
            request.method,
            sanitize_line(request.target),
            request.id
        ))),
        CallEvent::RequestFinished { request, elapsed, outcome, .. } => {
            let outcome = match outcome {
                Ok(result) => summary(result.get()),
                Err(error) => sanitize_line(&error.to_string()),
            };
            output::note(&dim(&format!("← {} after {elapsed:.0?}: {outcome}", request.round)));
        }
        _ => {}
    }
}

/// Describes a result in a few words.
fn summary(result: &str) -> String {
    let result: Value = serde_json::from_str(result).unwrap_or_default();
    match result.get("resultType").and_then(Value::as_str) {
        Some("input_required") => {}
        Some("task") => return "a task".to_owned(),
        _ => return "complete result".to_owned(),
    }
    let asked = result.get("inputRequests").and_then(Value::as_object);
    let keys: Vec<String> =
        asked.into_iter().flatten().map(|(key, _)| sanitize_line(key)).collect();
    let state = result.get("requestState").and_then(Value::as_str).map_or(0, str::len);
    let asks = if keys.is_empty() {
        "no questions".to_owned()
    } else {
        format!("asks {}", keys.join(", "))
    };
    format!("{asks}, with a state of {state} bytes")
}

/// Returns the prepared answers to the pending questions of a call.
fn answered(call: &PendingCall, answers: &Answers) -> Result<InputResponses> {
    let mut all = InputResponses::default();
    for (key, request) in &call.input_requests().0 {
        if let Some(answer) = answers.to(key, request) {
            all.push(key, &answer).map_err(Failure::usage)?;
        }
    }
    Ok(all)
}

/// The file that a suspended call is written to.
///
/// On Unix, only its owner can read it, since a reader could continue the call. The previous
/// content remains until the call is written.
struct PauseFile {
    path: PathBuf,
    temporary_path: PathBuf,
    temporary: File,
}

impl PauseFile {
    fn create(path: &Path) -> Result<Self> {
        let mut temporary_path = path.as_os_str().to_owned();
        temporary_path.push(format!(".{}", std::process::id()));
        let (path, temporary_path) = (path.to_owned(), PathBuf::from(temporary_path));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let temporary = options
            .open(&temporary_path)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        Ok(Self { path, temporary_path, temporary })
    }

    fn write(mut self, text: &str) -> Result<PathBuf> {
        let written =
            self.temporary.write_all(text.as_bytes()).and_then(|()| self.temporary.sync_all());
        let written = written.and_then(|()| std::fs::rename(&self.temporary_path, &self.path));
        written.map_err(|error| Failure::usage(format!("{}: {error}", self.path.display())))?;
        Ok(self.path.clone())
    }
}

impl Drop for PauseFile {
    fn drop(&mut self) {
        // After a successful write, the temporary file was renamed, and this fails.
        let _ = std::fs::remove_file(&self.temporary_path);
    }
}

/// Writes a suspended call to its file, and prints the questions.
fn suspend(call: &PendingCall, file: PauseFile, json: bool) -> Result<ExitCode> {
    let path = file.write(&serde_json::to_string_pretty(call).map_err(Failure::usage)?)?;
    if json {
        output::json(call.input_requests());
    } else {
        for (key, request) in &call.input_requests().0 {
            let message = match request {
                InputRequest::Elicit(ElicitParams::Url(url)) => {
                    format!("{} {}", url.message, url.url)
                }
                InputRequest::Elicit(params) => params.message().to_owned(),
                other => other.method().to_owned(),
            };
            output::line(&format!("{}: {}", sanitize_line(key), sanitize_line(&message)));
        }
        let what = if call.input_requests().0.is_empty() { "running" } else { "suspended" };
        output::note(&format!("The {what} call is in {}.", path.display()));
    }
    Ok(ExitCode::from(5))
}

/// Prints the result of a call, and returns the exit code.
fn finish(result: &CallToolResult, json: bool) -> ExitCode {
    if json {
        output::json(result);
    } else {
        interactive::show_result(result);
    }
    if result.is_error { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_on_a_legacy_session_cannot_be_paused() {
        assert!(check_can_be_paused(Some(PROTOCOL_VERSION)).is_ok());
        assert!(check_can_be_paused(None).is_ok());
        let failure = check_can_be_paused(Some("2025-11-25")).err();
        let message = failure.map(|failure| failure.message).unwrap_or_default();
        assert!(message.contains("MCP 2025-11-25") && message.contains("--pause"), "{message}");
    }
}
