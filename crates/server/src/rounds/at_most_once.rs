//! The outcome of a step that runs at most once.

use serde::{Deserialize, Serialize};

/// The outcome of a step that runs [at most once](crate::StepFuture::at_most_once).
///
/// ```
/// use mrtr_server::{AtMostOnce, Context, Error, Result};
/// # async fn send_fax(page: &str) -> Result<u64> { Ok(page.len() as u64) }
/// # async fn find_fax(page: &str) -> Result<Option<u64>> { Ok(Some(page.len() as u64)) }
///
/// async fn fax(cx: &Context, page: &str) -> Result<u64> {
///     let sent = cx.step("send", async |_| send_fax(page).await).at_most_once().await?;
///     match sent {
///         AtMostOnce::Completed(number) => Ok(number),
///         // The replica died while it was sending. The journal of the fax machine knows more.
///         AtMostOnce::Unknown => cx
///             .step("find", async |_| find_fax(page).await)
///             .await?
///             .ok_or_else(|| Error::new("The fax may not have been sent.")),
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtMostOnce<T> {
    /// The step completed, with this result.
    Completed(T),
    /// The step began, and it is not known what became of it: its replica died, shut down or lost
    /// the task, or the step timed out or was dropped. It is not run again.
    Unknown,
}

impl<T> AtMostOnce<T> {
    /// Returns the result, or `None` if the outcome is unknown.
    pub fn completed(self) -> Option<T> {
        match self {
            Self::Completed(result) => Some(result),
            Self::Unknown => None,
        }
    }
}

/// [`AtMostOnce::Unknown`] as JSON, of any type.
pub(super) const UNKNOWN: &str = "\"unknown\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_outcome_has_one_text() {
        assert_eq!(serde_json::to_string(&AtMostOnce::<u8>::Unknown).unwrap(), UNKNOWN);
        let read: AtMostOnce<String> = serde_json::from_str(UNKNOWN).unwrap();
        assert_eq!(read.completed(), None);
        let text = serde_json::to_string(&AtMostOnce::Completed("unknown")).unwrap();
        assert_eq!(
            serde_json::from_str::<AtMostOnce<String>>(&text).unwrap().completed().as_deref(),
            Some("unknown")
        );
    }
}
