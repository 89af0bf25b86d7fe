//! The client of a server.

use std::time::Duration;

use mrtr::auth::client::OAuthClient;
use mrtr::http::{HttpClient, HttpClientBuilder, HttpConnection};
use mrtr::schema::capabilities::Implementation;
use mrtr::schema::uri;
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
        if sends_plain_text_elsewhere(&self.url) {
            return Err(Failure::usage(format!(
                "cannot use --token-env with {:?}: needs https, or a host that is localhost, \
                 127.0.0.1 or [::1]",
                self.url
            )));
        }
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

/// Returns true if requests to the URL leave this machine without encryption.
fn sends_plain_text_elsewhere(url: &str) -> bool {
    let is_plain = url.split(':').next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
    let host = uri::host(url);
    let is_local = ["localhost", "127.0.0.1", "[::1]"].iter().any(|local| {
        host.strip_prefix(local).is_some_and(|port| port.is_empty() || port.starts_with(':'))
    });
    is_plain && !is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_on_this_machine() {
        for url in
            ["https://a.example/mcp", "http://localhost:1/mcp", "http://[::1]/", "HTTP://127.0.0.1"]
        {
            assert!(!sends_plain_text_elsewhere(url), "{url}");
        }
        for url in [
            "http://a.example/mcp",
            "HTTP://10.0.0.1:1",
            "http://localhost.example/",
            "http://localhost@a.example",
        ] {
            assert!(sends_plain_text_elsewhere(url), "{url}");
        }
    }
}
