//! The layer around a service.

use tower_layer::Layer;

use super::protected_resource::ProtectedResource;
use super::service::Protected;

/// A tower layer that wraps services as [`ProtectedResource::protect`] does.
#[derive(Debug, Clone)]
pub struct ProtectLayer {
    resource: ProtectedResource,
}

impl ProtectedResource {
    /// Returns a layer that wraps services as [`protect`](Self::protect) does.
    pub fn layer(&self) -> ProtectLayer {
        ProtectLayer { resource: self.clone() }
    }
}

impl<S> Layer<S> for ProtectLayer {
    type Service = Protected<S>;

    fn layer(&self, inner: S) -> Protected<S> {
        self.resource.protect(inner)
    }
}
