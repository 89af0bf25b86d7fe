//! The addresses that may be asked for metadata, keys and tokens: their URLs come from others, who
//! could name internal services (server-side request forgery).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that are allowed in addition to public ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AddressPolicy {
    pub(crate) loopback: bool,
    pub(crate) private: bool,
}

impl AddressPolicy {
    /// Returns true if the address may be connected to.
    pub(crate) fn allows(self, address: IpAddr) -> bool {
        match class(address) {
            Class::Public => true,
            Class::Loopback => self.loopback,
            Class::Private => self.private,
            Class::Other => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Public,
    Loopback,
    /// Of a private network (RFC 1918, RFC 4193), or of a carrier's (RFC 6598).
    Private,
    /// Link-local, which cloud platforms serve credentials on; multicast; or reserved.
    Other,
}

fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => class_v6(address),
    }
}

fn class_v4(address: Ipv4Addr) -> Class {
    match address.octets() {
        [127, ..] => Class::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Class::Private,
        [0 | 224..=255, ..]
        | [169, 254, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Class::Other,
        _ => Class::Public,
    }
}

fn class_v6(address: Ipv6Addr) -> Class {
    if address == Ipv6Addr::LOCALHOST {
        return Class::Loopback;
    }
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        class_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // IPv4-mapped, and translated (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        [0xfc00..=0xfdff, ..] => Class::Private,
        // Teredo, documentation.
        [0x2001, 0 | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Class::Other,
        [0x2000..=0x3fff, ..] => Class::Public,
        _ => Class::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_classified() {
        for (class, addresses) in [
            (
                Class::Public,
                &["1.1.1.1", "172.15.0.1", "100.63.0.1", "2606:4700::1", "::ffff:8.8.8.8"][..],
            ),
            (Class::Loopback, &["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]),
            (
                Class::Private,
                &[
                    "10.0.0.1",
                    "172.16.0.1",
                    "172.31.255.255",
                    "192.168.1.1",
                    "100.64.0.1",
                    "fd00::1",
                    "fc00::1",
                    "64:ff9b::10.0.0.1",
                    "2002:a00:1::",
                ],
            ),
            (
                Class::Other,
                &[
                    "169.254.169.254",
                    "::ffff:169.254.169.254",
                    "64:ff9b::a9fe:a9fe",
                    "64:ff9b:1::1",
                    "0.0.0.0",
                    "255.255.255.255",
                    "224.0.0.1",
                    "192.0.0.192",
                    "198.18.0.1",
                    "::",
                    "fe80::1",
                    "ff02::1",
                    "fec0::1",
                    "2001::1",
                    "2001:db8::1",
                    "::7f00:1",
                ],
            ),
        ] {
            for address in addresses {
                assert_eq!(super::class(address.parse().unwrap()), class, "{address}");
            }
        }
    }

    #[test]
    fn link_local_addresses_are_never_allowed() {
        let policy = AddressPolicy { loopback: true, private: true };
        assert!(policy.allows("10.0.0.1".parse().unwrap()));
        assert!(!policy.allows("169.254.169.254".parse().unwrap()));
        assert!(!AddressPolicy::default().allows("127.0.0.1".parse().unwrap()));
    }
}
