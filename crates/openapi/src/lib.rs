#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api_client;
mod arguments;
mod budget;
mod credentials;
mod document;
mod error;
mod files;
mod form;
mod handler;
mod media_type;
mod multipart;
mod operation;
mod output_schema;
mod parameter;
mod plan;
mod request;
mod response;
mod schema;
mod tools;

#[cfg(feature = "reqwest")]
pub use api_client::ReqwestClient;
pub use api_client::{ApiClient, SendError};
pub use error::OpenApiError;
pub use operation::{Operation, SkippedOperation};
/// The version of reqwest that [`ReqwestClient`] uses.
#[cfg(feature = "reqwest")]
pub use reqwest;
pub use tools::{OpenApi, OpenApiTools};
