//! Envelope encryption: the key ring beside the service is wrapped by a KMS, which is asked when the ring is loaded and
//! when it is reloaded, and never for a token.
//!
//! `cargo run --example envelope`

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};

use mrtr::seal::{Kms, Seal as _};
use mrtr::{KeyRing, Secret, Server, SharedKeyRing};

const AUDIENCE: &str = "https://booking.example/mcp";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let kms = StandIn { key: KeyRing::ephemeral()?, asked: AtomicU32::new(0) };

    // An operator, once: what is written to the service's configuration is of no use without the KMS.
    let (first, second) = (kms.new_secret()?, kms.new_secret()?);
    let config = format!("active {first}");
    println!("the configuration holds   {config:.50}…");

    // The service, when it starts.
    let ring = SharedKeyRing::new(KeyRing::from_wrapped(AUDIENCE, &config, &kms).await?);
    let server =
        Server::builder("booking", "1.0.0").require_principal().sealer(ring.clone()).build()?;
    let token = ring.seal(b"what a tool has learned".to_vec())?;
    println!("the first token           {token:.50}…");

    // The service, while it runs: whenever the configuration changes, or once an hour. What would refuse open calls is
    // refused, and the ring stays as it was.
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
    println!("the KMS was asked         {} times", kms.asked.load(Ordering::Relaxed));
    drop(server);
    Ok(())
}

/// In the place of a KMS, whose key nobody sees.
struct StandIn {
    key: KeyRing,
    asked: AtomicU32,
}

impl StandIn {
    /// A new secret, wrapped.
    fn new_secret(&self) -> Result<String, Box<dyn Error>> {
        Ok(self.key.seal(Secret::generate()?.to_base64url().as_bytes().to_vec())?)
    }
}

impl Kms for StandIn {
    type Error = Box<dyn Error + Send + Sync>;

    async fn unwrap_secret(&self, wrapped: &str) -> Result<Secret, Self::Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        // Here a real one is called, over the network.
        tokio::task::yield_now().await;
        // (A real one also wipes what it unwrapped: see the crate `zeroize`.)
        Ok(Secret::from_base64url(str::from_utf8(&self.key.open(wrapped)?)?)?)
    }
}
