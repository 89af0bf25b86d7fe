//! The client of a server.

use std::time::Duration;

use mrtr::auth::client::OAuthClient;
use mrtr::http::{HttpClient, HttpClientBuilder, HttpConnection};
use mrtr::schema::capabilities::Implementation;
use mrtr::{Client, ClientBuilder};

use crate::failure::{Failure, Result};
use crate::options::Server;

impl Server {
    /// Returns a client builder for the server, with these credentials. The timeout is that of each
    /// request, without the time of a login between two requests.
    pub(crate) fn connect(&self, oauth: OAuthClient) -> Result<ClientBuilder<HttpConnection>> {
        self.build(HttpClient::builder(&self.url).credentials(oauth))
    }

    /// Returns a client builder for the server, with the bearer token in an environment variable.
    pub(crate) fn connect_with_token(&self, name: &str) -> Result<ClientBuilder<HttpConnection>> {
        let token = std::env::var(name)
            .map_err(|_| Failure::usage(format!("environment variable {name} is not set")))?;
        self.build(HttpClient::builder(&self.url).bearer(&token).map_err(Failure::usage)?)
    }

    fn build(&self, http: HttpClientBuilder) -> Result<ClientBuilder<HttpConnection>> {
        let time = Duration::from_secs(self.timeout);
        let http = http.timeout(time).build().map_err(Failure::usage)?;
        let info = Implementation::new("mrtr-cli", env!("CARGO_PKG_VERSION"));
        let connection = HttpConnection::new(http);
        Ok(Client::builder(connection).info(info))
    }
}
