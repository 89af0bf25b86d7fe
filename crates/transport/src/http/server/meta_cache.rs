//! What a client says of itself, it says with every request.

use std::cell::RefCell;
use std::sync::Arc;

use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::request_head::RequestHead;

/// Longer ones are read anew each time.
const LONGEST: usize = 1024;

/// The `_meta` that was read last: one that is the same, byte for byte, says the same.
#[derive(Debug, Default)]
pub(super) struct MetaCache(Option<(Box<str>, Arc<RequestMeta>)>);

thread_local! {
    /// Each thread has its own: none waits for another.
    static LAST: RefCell<MetaCache> = const { RefCell::new(MetaCache(None)) };
}

impl MetaCache {
    /// With what was read last on this thread.
    pub(super) fn with<T>(look: impl FnOnce(&mut Self) -> T) -> T {
        LAST.with_borrow_mut(look)
    }

    /// The last one's text; nothing, if there is none.
    pub(super) fn text(&self) -> &str {
        self.0.as_ref().map_or("", |(text, _)| text)
    }

    /// As [`RequestHead::from_request`].
    pub(super) fn mirrored<'r>(
        &mut self,
        request: &'r Request,
    ) -> Result<RequestHead<'r>, ErrorObject> {
        let params = request.params.as_ref();
        let text = params.and_then(|params| params.member("_meta"));
        let (Some(params), Some(text)) = (params, text.filter(|text| text.len() <= LONGEST)) else {
            return RequestHead::from_request(request);
        };
        if let Some((_, meta)) = self.0.as_ref().filter(|(known, _)| **known == *text) {
            let (name, uri) = (params.string("name"), params.string("uri"));
            return Ok(RequestHead { meta: Some(Arc::clone(meta)), name, uri });
        }
        let mirrored = RequestHead::from_request(request)?;
        if let Some(meta) = &mirrored.meta {
            self.0 = Some((text.into(), Arc::clone(meta)));
        }
        Ok(mirrored)
    }
}

#[cfg(test)]
mod tests {
    use mrtr_schema::jsonrpc::{Params, RequestId};
    use serde_json::{Value, json};

    use super::*;

    fn request(meta: &Value) -> Request {
        let params = Params::new(&json!({ "name": "a", "_meta": meta })).unwrap();
        Request::new(RequestId::Number(1), "x", Some(params))
    }

    #[test]
    fn what_is_the_same_is_read_once_and_what_differs_is_read() {
        let mut same = MetaCache::default();
        assert_eq!(same.text(), "");
        let mut read = |meta: &Value| same.mirrored(&request(meta)).map(|mirrored| mirrored.meta);
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
        let named_request = request(&one);
        let named = same.mirrored(&named_request).unwrap().name.unwrap().into_owned();
        assert_eq!(named, "a");
    }
}
