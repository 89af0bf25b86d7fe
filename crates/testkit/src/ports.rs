//! Ports for servers that are restarted.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// The lowest port that is given out.
const FIRST: u16 = 10_000;

/// Returns `count` distinct ports on which nothing listens, on 127.0.0.1.
///
/// They are below the ports that the system gives to outgoing connections. Such a connection may
/// otherwise take the port of a server between its end and its restart, and the restart fails.
///
/// # Errors
///
/// Returns an error if there are not enough free ports.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let end = first_outgoing_port();
    // Runs at the same time begin at different ports.
    let span = u32::from(end.saturating_sub(FIRST)).max(1);
    let offset = u16::try_from(std::process::id().wrapping_mul(61) % span).unwrap_or_default();
    let from = FIRST.saturating_add(offset);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let ports: Vec<u16> = (from..end).chain(FIRST..from).filter(is_free).take(count).collect();
    if ports.len() < count {
        return Err(io::Error::other(format!("fewer than {count} free ports below {end}")));
    }
    Ok(ports)
}

/// Returns the lowest port of outgoing connections: on Linux as it is configured, elsewhere the
/// lowest that is in use as a default.
fn first_outgoing_port() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok());
    first.unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_distinct_and_not_those_of_outgoing_connections() {
        let mut ports = free_ports(8).unwrap();
        assert!(ports.iter().all(|port| *port < first_outgoing_port()), "{ports:?}");
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }

    #[test]
    fn port_in_use_is_left_out() {
        let first = free_ports(1).unwrap();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, first[0])).unwrap();
        assert_ne!(free_ports(1).unwrap(), first);
    }
}
