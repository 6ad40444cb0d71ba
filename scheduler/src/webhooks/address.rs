//! Where notices may go. A user names the address and the server calls it: so nothing that only the server can reach (its own machine, the private
//! network, what a cloud tells its machines) may be named, unless the operator lists it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses: `10.1.0.0/16`, `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no network: write an address, or one with the length of its prefix, as in 10.1.0.0/16")]
pub struct NoNetwork(String);

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let wrong = || NoNetwork(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = if first.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(longest);
        if prefix <= longest { Ok(Self { first, prefix }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl Network {
    fn holds(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                first.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                first.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// Whether a notice may be sent to this address.
pub fn may_reach(address: IpAddr, allowed: &[Network]) -> bool {
    let address = plain(address);
    allowed.iter().any(|network| network.holds(address)) || is_public(address)
}

/// The address of the fourth version that one of the sixth stands for (mapped, compatible, NAT64, 6to4): it is there that a packet arrives.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let parts = six.segments();
    let low = |at: usize| Ipv4Addr::from((u32::from(parts[at]) << 16) | u32::from(parts[at + 1]));
    match parts {
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] | [0x64, 0xff9b, 1, ..] => low(6).into(),
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => low(6).into(),
        [0x2002, ..] => low(1).into(),
        _ => address,
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_v4(four),
        IpAddr::V6(six) => is_public_v6(six),
    }
}

/// Without the special-purpose ranges of IANA's registry, and without the address at which Azure answers its machines.
fn is_public_v4(four: Ipv4Addr) -> bool {
    const AZURE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
    let [a, b, c, _] = four.octets();
    let special = matches!((a, b, c), (0, ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18..=19, _) | (192, 88, 99))
        || four.is_private()
        || four.is_loopback()
        || four.is_link_local()
        || four.is_documentation()
        || four.is_multicast()
        || a >= 240;
    !special && four != AZURE
}

/// Global unicast is 2000::/3; of it some is for documents, tunnels and benchmarks.
fn is_public_v6(six: Ipv6Addr) -> bool {
    let parts = six.segments();
    let special = matches!(parts, [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..]);
    (parts[0] & 0xe000) == 0x2000 && !special
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn may(address: &str, allowed: &[&str]) -> bool {
        let allowed: Vec<Network> = allowed.iter().map(|one| one.parse().unwrap()).collect();
        may_reach(address.parse().unwrap(), &allowed)
    }

    #[test]
    fn only_public_addresses_are_reached() {
        for inside in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "203.0.113.9",
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "100::1",
            "5f00::1",
            // The same by other names.
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(!may(inside, &[]), "{inside}");
        }
        for outside in ["1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"] {
            assert!(may(outside, &[]), "{outside}");
        }
    }

    #[test]
    fn what_the_operator_lists_is_reached_by_whatever_name() {
        assert!(may("10.1.2.3", &["10.1.0.0/16"]) && !may("10.2.0.0", &["10.1.0.0/16"]));
        assert!(may("::ffff:10.1.2.3", &["10.1.0.0/16"]));
        assert!(may("127.0.0.1", &["127.0.0.1"]) && !may("127.0.0.2", &["127.0.0.1"]));
        assert!(may("fd12::1", &["fd00::/8"]) && may("10.0.0.1", &["0.0.0.0/0"]));
        for wrong in ["10.0.0.0/33", "fd00::/129", "hooks.example", "", "10.0.0.0/"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn an_address_is_judged_alike_by_all_its_names(bits in any::<u32>()) {
            let four = Ipv4Addr::from_bits(bits);
            let [a, b] = [(bits >> 16) as u16, bits as u16];
            let names = [four.to_ipv6_mapped(), Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b), Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1)];
            for name in names {
                prop_assert_eq!(may_reach(name.into(), &[]), may_reach(four.into(), &[]));
            }
        }
    }
}
