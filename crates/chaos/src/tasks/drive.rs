//! One caller and its task: polls, answers, perhaps a cancellation, up to the end.

use std::time::Duration;

use mrtr::client::{CallOutcome, PendingCall};
use mrtr::schema::input::InputResponses;
use mrtr::schema::tool::CallToolResult;
use mrtr::{CallError, Client};
use mrtr_testkit::random::Random;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::check::name_of;
use super::clients::{Anywhere, Shared, is_not_found};
use super::observed::{Answered, Cancelled, End, Observation, Status};
use super::record::now;
use crate::lock;
use crate::workload::{answer_to, consents};

/// Added to an answer that is sent after another one to the same question was acknowledged.
pub(crate) const LATE: &str = "late";

pub(crate) struct Driver<'a> {
    pub(crate) client: &'a Client<Anywhere>,
    pub(crate) call: &'a Shared,
    /// Cancels the task after this number of polls.
    pub(crate) cancels: Option<u64>,
}

/// Polls a task.
pub(crate) async fn get(client: &Client<Anywhere>, id: &str) -> Result<Status, CallError> {
    let task = match client.request::<Value>("tasks/get", json!({ "taskId": id })).await {
        Err(error) if is_not_found(&error) => return Ok(Status::NotFound),
        task => task?,
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(match task["status"].as_str().unwrap_or_default() {
        "working" => Status::Working,
        "input_required" => {
            let requests = task["inputRequests"].as_object().into_iter().flatten();
            Status::Input(requests.map(|(key, request)| (key.clone(), message(request))).collect())
        }
        "completed" => Status::Ended(End::Completed(text(&task["result"]["content"][0]["text"]))),
        "cancelled" => Status::Ended(End::Cancelled),
        _ => Status::Ended(End::Failed(task["error"].to_string())),
    })
}

/// A call that has become a task.
pub(crate) struct Begun {
    pub(crate) pending: PendingCall,
    /// The time of the request with whose response it became one.
    pub(crate) asked: f64,
}

/// A paused call, as an application stores it.
#[derive(Clone)]
struct Paused {
    json: String,
    has_questions: bool,
    /// When the caller began to ask for what it was paused at, and when it had it.
    times: (f64, f64),
}

impl Paused {
    fn new(pending: &PendingCall, asked: f64) -> Option<Self> {
        let (json, times) = (serde_json::to_string(pending).ok()?, (asked, now()));
        Some(Self { json, has_questions: !pending.input_requests().0.is_empty(), times })
    }
}

/// Returns the message of an input request.
pub(crate) fn message(request: &Value) -> String {
    request["params"]["message"].as_str().unwrap_or_default().to_owned()
}

impl Driver<'_> {
    /// Drives the task to its end, or until it does not exist any more. With a paused call, half of
    /// the polls resume it as another process would.
    pub(crate) async fn run(mut self, begun: Option<Begun>, random: &mut Random) {
        let mut stored = begun.and_then(|Begun { pending, asked }| Paused::new(&pending, asked));
        let task = lock(self.call).task.clone();
        let Some((id, _)) = task else { return };
        // Open questions that were seen since the last answers, and whether they are the first.
        let mut waits_first = false;
        for polls in 0_u64.. {
            if self.cancels.is_some_and(|after| polls >= after)
                && self.cancel(&id, waits_first).await
            {
                self.cancels = None;
            }
            let resumed = stored.clone().filter(|_| random.below(2) == 0);
            // Questions that a paused call stands at were seen before.
            let seen = resumed.as_ref().filter(|paused| paused.has_questions);
            let seen = seen.map(|paused| paused.times);
            let asked = seen.map_or_else(now, |(asked, _)| asked);
            let (status, pending) = match resumed {
                Some(paused) => match self.resume(&paused.json).await {
                    Ok(resumed) => resumed,
                    Err(error) => {
                        if error.is_too_many_rounds() {
                            // After a restoration: it does not answer a question twice.
                            stored = None;
                        }
                        continue;
                    }
                },
                None => {
                    sleep(Duration::from_millis(120 + random.below(80))).await;
                    match get(self.client, &id).await {
                        Ok(status) => (status, None),
                        Err(_) => continue,
                    }
                }
            };
            match status {
                Status::Working => {
                    // Its answers are on their way, or none was asked for yet.
                    waits_first = false;
                }
                Status::Input(questions) => {
                    waits_first = self.see(seen.unwrap_or_else(|| (asked, now())), &questions);
                    if self.cancels.is_none_or(|after| polls + 1 < after) {
                        waits_first = false;
                        let all = self.answer(&id, asked, questions, pending, random).await;
                        // What a paused call has seen is old once its questions were answered.
                        stored = all.or(stored.filter(|paused| !paused.has_questions));
                    }
                }
                Status::Ended(_) | Status::NotFound => {
                    let observation = Observation { asked, at: now(), status };
                    lock(self.call).observations.push(observation);
                    return;
                }
            }
        }
    }

    /// Polls the task through the paused call.
    async fn resume(&self, json: &str) -> Result<(Status, Option<PendingCall>), CallError> {
        let Ok(pending) = serde_json::from_str::<PendingCall>(json) else {
            lock(self.call).unexpected.push("a paused call cannot be read".to_owned());
            return Ok((Status::Working, None));
        };
        let outcome = if pending.input_requests().0.is_empty() {
            self.client.resume::<CallToolResult>(pending, &InputResponses::default()).await
        } else {
            Ok(CallOutcome::InputRequired(pending))
        };
        match outcome {
            Ok(CallOutcome::Complete(result)) => {
                Ok((Status::Ended(End::Completed(result.text())), None))
            }
            Ok(CallOutcome::Working(pending)) => Ok((Status::Working, Some(pending))),
            Ok(CallOutcome::InputRequired(pending)) => {
                let requests = pending.input_requests().0.iter().map(|(key, request)| {
                    let request = serde_json::to_value(request).unwrap_or_default();
                    (key.clone(), message(&request))
                });
                Ok((Status::Input(requests.collect()), Some(pending)))
            }
            Err(error) if error.is_task_cancelled() => Ok((Status::Ended(End::Cancelled), None)),
            Err(error) if is_not_found(&error) => Ok((Status::NotFound, None)),
            Err(error) => Err(error),
        }
    }

    /// Records questions. Returns true if the task waits for its first answers.
    fn see(&self, times: (f64, f64), questions: &[(String, String)]) -> bool {
        let mut call = lock(self.call);
        for (key, message) in questions {
            if let Some(answered) = call.answered.get(key).copied().filter(|it| it.at < times.0) {
                call.asked_again.push((key.clone(), answered, times));
            }
            let question = (key.clone(), message.clone());
            if !call.asked.contains(&question) {
                call.asked.push(question);
            }
        }
        call.answered.is_empty() && !call.is_update_lost
    }

    /// Answers questions that were seen open, all at once or one after the other. Returns the
    /// paused call if it has sent the answers.
    async fn answer(
        &self,
        id: &str,
        seen: f64,
        mut questions: Vec<(String, String)>,
        pending: Option<PendingCall>,
        random: &mut Random,
    ) -> Option<Paused> {
        let (caller, order) = {
            let call = lock(self.call);
            (call.caller.clone(), call.id.clone())
        };
        sleep(Duration::from_millis(random.below(150))).await;
        let response = |key: &str, message: &str, suffix: &str| {
            let name = name_of(key);
            if name == "consent" && !consents(&order) {
                return json!({ "action": "decline" });
            }
            let text = answer_to(&caller, name, message) + suffix;
            json!({ "action": "accept", "content": { "text": text } })
        };
        if let Some(pending) = pending.filter(|_| random.below(3) > 0) {
            let mut responses = InputResponses::default();
            for (key, message) in &questions {
                let response = response(key, message, "");
                if let Err(error) = responses.push(key, &response) {
                    lock(self.call).unexpected.push(error.to_string());
                }
            }
            let (asked, unsure) = (now(), self.begin_update());
            return match self.client.resume::<CallToolResult>(pending, &responses).await {
                Ok(CallOutcome::Working(pending) | CallOutcome::InputRequired(pending)) => {
                    let answered = Answered { seen, at: now() };
                    let keys = questions.into_iter().map(|(key, _)| (key, answered));
                    let mut call = lock(self.call);
                    call.answered.extend(keys);
                    call.is_update_lost = unsure;
                    Paused::new(&pending, asked)
                }
                _ => None,
            };
        }
        if random.below(2) == 0 {
            questions.reverse();
        }
        for (key, message) in questions {
            if !self.update(id, &key, response(&key, &message, "")).await {
                break;
            }
            let answered = Answered { seen, at: now() };
            lock(self.call).answered.insert(key.clone(), answered);
            if random.below(4) == 0 {
                // The first answer counts.
                self.update(id, &key, response(&key, &message, LATE)).await;
            }
            sleep(Duration::from_millis(random.below(200))).await;
        }
        None
    }

    /// Marks the request that follows as failed, until it is acknowledged: the driver may be dropped
    /// before. Returns the mark to restore then.
    fn begin_update(&self) -> bool {
        std::mem::replace(&mut lock(self.call).is_update_lost, true)
    }

    /// Sends one answer. Returns true if it was acknowledged.
    async fn update(&self, id: &str, key: &str, response: Value) -> bool {
        let params = json!({ "taskId": id, "inputResponses": { key: response } });
        let unsure = self.begin_update();
        let sent = self.client.request::<Value>("tasks/update", params).await.is_ok();
        if sent {
            lock(self.call).is_update_lost = unsure;
        }
        sent
    }

    /// Returns true if the cancellation was acknowledged.
    async fn cancel(&self, id: &str, waits: bool) -> bool {
        let (asked, params) = (now(), json!({ "taskId": id }));
        let unsure = std::mem::replace(&mut lock(self.call).is_cancel_lost, true);
        let sent = self.client.request::<Value>("tasks/cancel", params).await.is_ok();
        if sent {
            let mut call = lock(self.call);
            call.is_cancel_lost = unsure;
            let was_waiting = waits && !call.is_update_lost;
            call.cancelled = Some(Cancelled { asked, at: now(), was_waiting });
        }
        sent
    }
}
