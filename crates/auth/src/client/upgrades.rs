//! How often the user was asked for further scopes (specification: step-up authorization flow).

use http::HeaderMap;

use super::error::LoginError;

/// How often one operation may ask for further scopes.
const MAX_UPGRADES: u32 = 3;
/// How long an upgrade counts, in seconds.
const WINDOW: u64 = 600;
/// The most operations that are remembered. Beyond it, all others count as one.
const MAX_OPERATIONS: usize = 256;

/// Counts upgrades by operation: the method, and the name of the tool or the resource.
#[derive(Debug, Default)]
pub(super) struct Upgrades(Vec<(String, u32, u64)>);

impl Upgrades {
    /// Counts an upgrade for the operation of a request. Fails if there were too many.
    pub(super) fn count(&mut self, headers: &HeaderMap, now: u64) -> Result<(), LoginError> {
        self.0.retain(|(_, _, last)| now < last.saturating_add(WINDOW));
        let header =
            |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut operation = format!("{} {}", header("mcp-method"), header("mcp-name"));
        if self.0.len() >= MAX_OPERATIONS {
            operation.clear();
        }
        let Some((_, count, last)) = self.0.iter_mut().find(|(known, ..)| *known == operation)
        else {
            self.0.push((operation, 1, now));
            return Ok(());
        };
        if *count >= MAX_UPGRADES {
            return Err(LoginError::TooManyUpgrades(*count));
        }
        (*count, *last) = (*count + 1, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn operation_may_ask_three_times_in_ten_minutes() {
        let operation = |name: &'static str| {
            HeaderMap::from_iter([
                ("mcp-method".parse().unwrap(), HeaderValue::from_static("tools/call")),
                ("mcp-name".parse::<http::HeaderName>().unwrap(), HeaderValue::from_static(name)),
            ])
        };
        let mut upgrades = Upgrades::default();
        for now in [0, 1, 2] {
            upgrades.count(&operation("pay"), now).unwrap();
        }
        let error = upgrades.count(&operation("pay"), 601).unwrap_err();
        assert!(matches!(error, LoginError::TooManyUpgrades(3)));
        upgrades.count(&operation("book"), 601).unwrap();
        upgrades.count(&operation("pay"), 602).unwrap();
    }
}
