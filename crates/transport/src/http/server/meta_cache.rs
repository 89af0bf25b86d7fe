//! A per-thread cache of the last parsed `_meta`.
//!
//! A client repeats the same `_meta` (version, capabilities, client info) in every request, except
//! for the number of the progress token. Such a text is not parsed again.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use mrtr_schema::jsonrpc::{ErrorObject, Request, RequestId};
use mrtr_schema::known_meta::{KnownMeta, KnownToken};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::request_head::RequestHead;

/// The longest `_meta` that is cached, in bytes. It bounds the memory that a thread keeps.
const MAX_CACHED: usize = 1024;

/// The last `_meta`, as text and parsed.
#[derive(Debug, Default)]
pub(super) struct MetaCache(Option<(KnownMeta, Arc<RequestMeta>)>);

thread_local! {
    /// One cache per thread, so that no thread waits for another.
    static CACHE: RefCell<MetaCache> = const { RefCell::new(MetaCache(None)) };
}

impl MetaCache {
    /// Calls `f` with this thread's cache.
    pub(super) fn with<T>(f: impl FnOnce(&mut Self) -> T) -> T {
        CACHE.with_borrow_mut(f)
    }

    /// Returns the text of the cached `_meta`.
    pub(super) fn known(&self) -> &KnownMeta {
        static NONE: LazyLock<KnownMeta> = LazyLock::new(KnownMeta::default);
        self.0.as_ref().map_or(&NONE, |(known, _)| known)
    }

    /// Like [`RequestHead::from_request`], with the `_meta` from the cache if it is the same.
    pub(super) fn mirrored<'r>(
        &mut self,
        request: &'r Request,
    ) -> Result<RequestHead<'r>, ErrorObject> {
        let params = request.params.as_ref();
        let text = params.and_then(|params| params.member("_meta"));
        let Some(text) = text.filter(|text| text.len() <= MAX_CACHED) else {
            return RequestHead::from_request(request);
        };
        if let Some((known, meta)) = &self.0
            && let Some(token) = known.compare(text)
        {
            let meta = match token {
                KnownToken::Same => Arc::clone(meta),
                KnownToken::Other(token) => {
                    let other = RequestMeta::clone(meta);
                    Arc::new(other.with_progress_token(RequestId::Number(token)))
                }
            };
            return Ok(RequestHead::with_meta(Some(meta), request));
        }
        let mirrored = RequestHead::from_request(request)?;
        if let Some(meta) = &mirrored.meta {
            self.0 = Some((KnownMeta::new(text), Arc::clone(meta)));
        }
        Ok(mirrored)
    }
}

#[cfg(test)]
mod tests {
    use mrtr_schema::jsonrpc::Params;
    use serde_json::{Value, json};

    use super::*;

    fn request(meta: &Value) -> Request {
        let params = Params::new(&json!({ "name": "a", "_meta": meta })).unwrap();
        Request::new(RequestId::Number(1), "x", Some(params))
    }

    #[test]
    fn cache_parses_only_a_different_meta() {
        let mut cache = MetaCache::default();
        let mut parse = |meta: &Value| cache.mirrored(&request(meta)).map(|mirrored| mirrored.meta);
        let one = json!({ "progressToken": 1 });
        let first = parse(&one).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &parse(&one).unwrap().unwrap()));
        let second = parse(&json!({ "progressToken": 2 })).unwrap().unwrap();
        assert_eq!(second.progress_token, Some(RequestId::Number(2)));
        assert!(Arc::ptr_eq(&first, &parse(&one).unwrap().unwrap()));
        let third = parse(&json!({ "progressToken": "2" })).unwrap().unwrap();
        assert_eq!(third.progress_token, Some(RequestId::String("2".to_owned())));
        assert!(!Arc::ptr_eq(&first, &parse(&one).unwrap().unwrap()), "only the last is cached");
        assert!(parse(&json!({ "progressToken": {} })).is_err());
        assert!(parse(&one).is_ok());
        let long = json!({ "long": "x".repeat(MAX_CACHED) });
        let first = parse(&long).unwrap().unwrap();
        let second = parse(&long).unwrap().unwrap();
        assert!(first == second && !Arc::ptr_eq(&first, &second));
        let named_request = request(&one);
        let named = cache.mirrored(&named_request).unwrap().name.unwrap().into_owned();
        assert_eq!(named, "a");
    }
}
