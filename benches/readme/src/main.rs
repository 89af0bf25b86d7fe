//! The tools, served as in the README, with a subscriber at its defaults.

use std::error::Error;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let server = mrtr_peer::server()?;
    let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    tokio::spawn(announce(address));
    Ok(mrtr::serve(server, address).await?)
}

/// Prints the port once the server listens.
async fn announce(address: SocketAddr) {
    while TcpStream::connect(address).await.is_err() {
        tokio::task::yield_now().await;
    }
    println!("listening {}", address.port());
}
