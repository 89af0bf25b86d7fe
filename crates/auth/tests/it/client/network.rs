//! The proxy and the certificate authorities of logins.

use mrtr_auth::client::{BuildError, OAuthClient};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::world::World;

#[tokio::test]
async fn logins_use_the_proxy_but_not_for_the_loopback_interface() {
    let world = World::start().await;
    world.script(|s| s.issuer = "https://login.example".to_owned());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://user:word@{}", listener.local_addr().unwrap());
    let proxy = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await.unwrap();
        String::from_utf8(head).unwrap()
    });
    let client = world.builder().proxy(&url).unwrap().build().unwrap();
    world.call(&world.http(client)).await.unwrap_err();
    // The first request through the proxy is the one to the authorization server.
    let head = proxy.await.unwrap();
    assert!(head.starts_with("CONNECT login.example:443 "), "{head}");
    assert!(head.to_ascii_lowercase().contains("proxy-authorization: basic "), "{head}");
    let metadata = "MCP GET /.well-known/oauth-protected-resource/mcp";
    assert!(world.paths().contains(&metadata.to_owned()), "{:?}", world.paths());
}

#[test]
fn settings_are_checked() {
    let builder = || OAuthClient::builder("app");
    let error = builder().proxy("http://user:hunter2@[").unwrap_err();
    assert!(matches!(error, BuildError::Proxy), "{error}");
    assert!(!format!("{error:?}{error}").contains("hunter2"));
    builder().root_certificates(ROOT.as_bytes()).unwrap().build().unwrap();
    for pem in ["", "text", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
        let error = builder().root_certificates(pem.as_bytes()).unwrap_err();
        assert!(matches!(error, BuildError::RootCertificates), "{error}");
    }
}

/// A self-signed certificate.
const ROOT: &str = "\
-----BEGIN CERTIFICATE-----
MIIBiTCCAS+gAwIBAgIUYKc1FdrMnITGfbzjczjvxEd+M2EwCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwObXJ0ciB0ZXN0IHJvb3QwIBcNMjYxMTI0MDQyMDQyWhgPMjEy
NjEwMzEwNDIwNDJaMBkxFzAVBgNVBAMMDm1ydHIgdGVzdCByb290MFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAEcuWqqUtnkB9FOIVdUiY+zFYJn6Nd1DOz7X3ofxJk
68OP0pa0V+SDo39LOXcXRQpCFpFwNCluJMxgMMHvVAWJ3KNTMFEwHQYDVR0OBBYE
FCik4YuQvTUnf33gVm9zL2sALryZMB8GA1UdIwQYMBaAFCik4YuQvTUnf33gVm9z
L2sALryZMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAJQVVbvQ
e/Eq9jjddnFDc0pHsqT6Vz7I1FNMNLp2KclSAiB9ucWRmlHj3COR5O6Qey/OoDo4
wyxZbbmixkDMzmx+tw==
-----END CERTIFICATE-----
";
