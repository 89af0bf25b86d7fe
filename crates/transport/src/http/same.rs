//! What a client says of itself, it says with every request.

use std::sync::{Arc, Mutex};

use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::meta::{Mirrored, RequestMeta};

/// Longer ones are read anew each time.
const LONGEST: usize = 1024;

/// The `_meta` that was read last: one that is the same, byte for byte, says the same.
#[derive(Debug, Default)]
pub(super) struct SameMeta(Mutex<Option<Arc<Known>>>);

#[derive(Debug)]
pub(super) struct Known {
    text: Box<str>,
    meta: Arc<RequestMeta>,
}

impl Known {
    /// The last one's text; nothing, if there is none.
    pub(super) fn text(known: Option<&Arc<Self>>) -> &str {
        known.map_or("", |known| &known.text)
    }
}

impl SameMeta {
    /// The last one. Whoever has the lock is not waited for: reading takes no longer.
    pub(super) fn last(&self) -> Option<Arc<Known>> {
        self.0.try_lock().ok()?.clone()
    }

    /// As [`Mirrored::of`], where `last` was the last one.
    pub(super) fn mirrored<'r>(
        &self,
        request: &'r Request,
        last: Option<&Arc<Known>>,
    ) -> Result<Mirrored<'r>, ErrorObject> {
        let params = request.params.as_ref();
        let text = params.and_then(|params| params.member("_meta"));
        let (Some(params), Some(text)) = (params, text.filter(|text| text.len() <= LONGEST)) else {
            return Mirrored::of(request);
        };
        if let Some(known) = last.filter(|known| *known.text == *text) {
            let (name, uri) = (params.string("name"), params.string("uri"));
            return Ok(Mirrored { meta: Some(Arc::clone(&known.meta)), name, uri });
        }
        let mirrored = Mirrored::of(request)?;
        if let (Some(meta), Ok(mut last)) = (&mirrored.meta, self.0.try_lock()) {
            *last = Some(Arc::new(Known { text: text.into(), meta: Arc::clone(meta) }));
        }
        Ok(mirrored)
    }
}

#[cfg(test)]
mod tests {
    use mrtr_schema::jsonrpc::{Params, RequestId, Version};
    use serde_json::{Value, json};

    use super::*;

    fn request(meta: &Value) -> Request {
        let params = Params::new(&json!({ "name": "a", "_meta": meta })).unwrap();
        let (id, method) = (RequestId::Number(1), "x".to_owned());
        Request { jsonrpc: Version, id, method, params: Some(params) }
    }

    #[test]
    fn what_is_the_same_is_read_once_and_what_differs_is_read() {
        let same = SameMeta::default();
        let read = |meta: &Value| {
            let last = same.last();
            same.mirrored(&request(meta), last.as_ref()).map(|mirrored| mirrored.meta)
        };
        let (one, other) = (json!({ "progressToken": 1 }), json!({ "progressToken": 2 }));
        let first = read(&one).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &read(&one).unwrap().unwrap()));
        let second = read(&other).unwrap().unwrap();
        assert_eq!(second.progress_token, Some(RequestId::Number(2)));
        assert!(!Arc::ptr_eq(&first, &read(&one).unwrap().unwrap()), "only the last is known");
        assert!(read(&json!({ "progressToken": {} })).is_err());
        assert!(read(&one).is_ok());
        let long = json!({ "long": "x".repeat(LONGEST) });
        let (first, second) = (read(&long).unwrap().unwrap(), read(&long).unwrap().unwrap());
        assert!(first == second && !Arc::ptr_eq(&first, &second));
        assert_eq!(Known::text(None), "");
        let named_request = request(&one);
        let named = same.mirrored(&named_request, None).unwrap().name.unwrap().into_owned();
        assert_eq!(named, "a");
    }
}
