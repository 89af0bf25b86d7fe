//! Envelope encryption: the key ring of the service is wrapped by a KMS. The service calls the KMS
//! when it loads or reloads the ring, and never for a token.
//!
//! `cargo run --example envelope`

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};

use mrtr::seal::{Kms, Seal as _};
use mrtr::{KeyRing, Secret, Server, SharedKeyRing};

const AUDIENCE: &str = "https://booking.example/mcp";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let kms = FakeKms { key: KeyRing::ephemeral()?, calls: AtomicU32::new(0) };

    // The operator, once. The configuration is useless without the KMS.
    let (first, second) = (kms.new_secret()?, kms.new_secret()?);
    let config = format!("active {first}");
    println!("the configuration holds   {config:.50}…");

    // The service at its start.
    let ring = SharedKeyRing::new(KeyRing::from_wrapped(AUDIENCE, &config, &kms).await?);
    let server =
        Server::builder("booking", "1.0.0").require_principal().sealer(ring.clone()).build()?;
    let token = ring.seal(b"the journal of a call".to_vec())?;
    println!("the first token           {token:.50}…");

    // The running service, when the configuration changes. A step that would reject the states of
    // open calls fails, and the ring stays unchanged.
    for config in [
        format!("active {second}"),
        format!("active {first}\nstaged {second}"),
        format!("active {second}\nretiring {first}"),
    ] {
        match ring.rotate(KeyRing::from_wrapped(AUDIENCE, &config, &kms).await?) {
            Ok(()) => println!(
                "reloaded                  the first token opens: {}",
                ring.open(&token).is_ok()
            ),
            Err(why) => println!("not reloaded              {why}"),
        }
    }
    println!("calls of the KMS          {}", kms.calls.load(Ordering::Relaxed));
    drop(server);
    Ok(())
}

/// Stands for a KMS, which never reveals its key.
struct FakeKms {
    key: KeyRing,
    calls: AtomicU32,
}

impl FakeKms {
    /// Creates a secret and wraps it.
    fn new_secret(&self) -> Result<String, Box<dyn Error>> {
        Ok(self.key.seal(Secret::generate()?.to_base64url().as_bytes().to_vec())?)
    }
}

impl Kms for FakeKms {
    type Error = Box<dyn Error + Send + Sync>;

    async fn unwrap_secret(&self, wrapped: &str) -> Result<Secret, Self::Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        // A real KMS is called over the network, and its client wipes what it unwrapped.
        tokio::task::yield_now().await;
        Ok(Secret::from_base64url(str::from_utf8(&self.key.open(wrapped)?)?)?)
    }
}
