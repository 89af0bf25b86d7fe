//! What a server speaks, by its answer to a request of the current revision (specification:
//! versioning, "Backward Compatibility").

use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId, Response, code};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::{PROTOCOL_VERSION, method};
use mrtr_transport::TransportError;
use serde_json::json;

use crate::LegacyVersion;

/// The code of errors about sessions in legacy revisions, by convention.
const NO_SESSION: i64 = -32_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Current,
    Legacy,
}

/// Returns the request by which the eras are told apart. `attempt` is another number each time: an
/// error for a cancelled request may arrive late.
pub(super) fn probe_request(meta: &RequestMeta, attempt: u64) -> Result<Request, TransportError> {
    let params = Params::new(&json!({ "_meta": meta }))
        .map_err(|error| TransportError::protocol(error.to_string()))?;
    // Ids of calls are numbers or chosen by the caller; this one is answered before they are sent.
    let id = RequestId::String(format!("probe-{attempt}"));
    Ok(Request::new(id, method::DISCOVER, Some(params)))
}

/// Returns the era of a server that has answered the probe.
pub(super) fn era_of(response: Response) -> Era {
    match response.outcome {
        Ok(result) => match serde_json::from_str::<DiscoverResult>(result.get()) {
            Ok(discovered) => era_of_versions(&discovered.supported_versions),
            // A server that answers anything with a result does not know the method.
            Err(_) => Era::Legacy,
        },
        Err(error) => era_of_error(&error),
    }
}

/// Returns the era of a server that supports these versions. A server of later revisions, which
/// this client does not know, is not a legacy server.
fn era_of_versions(versions: &[String]) -> Era {
    let is_legacy = versions.iter().any(|version| LegacyVersion::from_name(version).is_some());
    if is_legacy && !versions.iter().any(|version| version == PROTOCOL_VERSION) {
        return Era::Legacy;
    }
    Era::Current
}

/// Returns true if a server may answer any request of the current revision like this because it
/// does not speak it: servers of official SDKs that miss a session answer with one of the first
/// two.
pub(super) fn denies_current(response: &Response) -> bool {
    response.outcome.as_ref().is_err_and(|error| match error.code {
        code::INVALID_REQUEST | NO_SESSION => true,
        code::UNSUPPORTED_PROTOCOL_VERSION => era_of_error(error) == Era::Legacy,
        _ => false,
    })
}

/// Returns the era of a server that answers the probe with this error.
fn era_of_error(error: &ErrorObject) -> Era {
    match error.code {
        code::HEADER_MISMATCH | code::MISSING_REQUIRED_CLIENT_CAPABILITY => Era::Current,
        code::UNSUPPORTED_PROTOCOL_VERSION => {
            let supported = error.data.as_ref().and_then(|data| data.get("supported"));
            let supported: Option<Vec<String>> =
                supported.and_then(|all| serde_json::from_value(all.clone()).ok());
            supported.map_or(Era::Current, |all| era_of_versions(&all))
        }
        _ => Era::Legacy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::to_raw_value;

    #[test]
    fn only_errors_of_the_current_revision_identify_it() {
        let era = |code, data: serde_json::Value| {
            let error = ErrorObject::new(code, "x").with_data(data);
            era_of(Response::error(None, error))
        };
        for code in [code::HEADER_MISMATCH, code::MISSING_REQUIRED_CLIENT_CAPABILITY] {
            assert_eq!(era(code, json!(null)), Era::Current);
        }
        for code in [-32601, -32602, -32600, -32000, -32603] {
            assert_eq!(era(code, json!(null)), Era::Legacy, "{code}");
        }
        let unsupported = code::UNSUPPORTED_PROTOCOL_VERSION;
        let with = |supported| era(unsupported, json!({ "supported": supported }));
        assert_eq!(with(json!(["2027-01-01"])), Era::Current);
        assert_eq!(with(json!(["2026-07-28", "2025-11-25"])), Era::Current);
        assert_eq!(with(json!(["2025-11-25"])), Era::Legacy);
        assert_eq!(era(unsupported, json!(null)), Era::Current);
    }

    #[test]
    fn result_identifies_the_current_revision_by_its_versions() {
        let era = |result: serde_json::Value| {
            era_of(Response { id: None, outcome: Ok(to_raw_value(&result).unwrap()) })
        };
        let discovered = |versions| json!({ "supportedVersions": versions, "capabilities": {} });
        assert_eq!(era(discovered(json!(["2026-07-28"]))), Era::Current);
        assert_eq!(era(discovered(json!(["2025-11-25"]))), Era::Legacy);
        assert_eq!(era(discovered(json!(["2027-01-01"]))), Era::Current);
        assert_eq!(era(json!({})), Era::Legacy);
    }
}
