#![allow(clippy::unwrap_used)]
//! What strangers ask who want to join: understood or refused, and a certificate says of its holder what was asked and no more.

use headway_api::agent::{JoinToken, wire};
use headway_fuzz::Target;
use headway_types::{Seconds, Timestamp};
use prost::Message;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::understood;
use crate::authority::{Authority, Shown};

#[test]
fn whatever_a_stranger_asks_is_understood_or_refused_and_no_certificate_says_more() {
    let now = Timestamp(1_700_000_000_000_000);
    let (authority, _) = Authority::make(now).unwrap();
    let until = now + Seconds(3_600.0);
    let signing_request = || {
        let key = KeyPair::generate().unwrap();
        CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
    };
    let token = JoinToken { secret: "0".repeat(64), fingerprint: authority.fingerprint().into() }.text();
    let seeds = ["node-1", "gpu07.cluster.example"].map(|name| wire::JoinRequest {
        token: token.clone(),
        identity_id: "0193e6a4-3c1e-7b61-9f1e-0d5b6a7c8d9e".into(),
        name: name.into(),
        fleet: name == "node-1",
        signing_request: signing_request(),
    });
    Target::message("join-requests").seeds(seeds.map(|seed| seed.encode_to_vec())).check(|input| {
        let Ok(asked) = wire::JoinRequest::decode(input) else { return false };
        match understood(asked) {
            Ok((_, named, signing)) => {
                let signed = authority.sign(&signing, &named, now, until).unwrap();
                let shown = Shown::of(&CertificateDer::from_pem_slice(signed.as_bytes()).unwrap()).unwrap();
                assert_eq!(shown.named, named);
                true
            }
            Err(wrong) => {
                assert!(!wrong.is_empty());
                false
            }
        }
    });
}
