//! What a node asks to have signed: PKCS #10, of which only the key is taken, and that whoever asks has it.

use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use yasna::{ASN1Result, BERReader};

use super::AuthorityError;

/// In bytes.
const LONGEST: usize = 4 * 1024;

/// A key of ECDSA on P-256, whose holder has asked for a signature over it.
#[derive(Debug)]
pub struct SigningRequest {
    /// The point.
    key: Vec<u8>,
}

impl SigningRequest {
    /// Of DER.
    pub fn read(der: &[u8]) -> Result<Self, AuthorityError> {
        if der.len() > LONGEST {
            return Err(AuthorityError::Request(format!("it has more than {LONGEST} bytes")));
        }
        let (asked, signature) = yasna::parse_der(der, signed).map_err(|error| unread(&error))?;
        let key = yasna::parse_der(&asked, key_of).map_err(|error| unread(&error))?;
        // No other kind of key passes.
        let held = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &key).verify(&asked, &signature);
        held.map_err(|_| {
            AuthorityError::Request("it is not signed with the key of ECDSA on P-256 that it asks for".into())
        })?;
        Ok(Self { key })
    }
}

impl PublicKeyData for SigningRequest {
    fn der_bytes(&self) -> &[u8] {
        &self.key
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

fn unread(error: &yasna::ASN1Error) -> AuthorityError {
    AuthorityError::Request(format!("{:?}", error.kind()))
}

/// RFC 2986, 4.2: what is signed, and the signature.
fn signed(request: BERReader<'_, '_>) -> ASN1Result<(Vec<u8>, Vec<u8>)> {
    request.read_sequence(|parts| {
        let asked = parts.next().read_der()?;
        parts.next().read_der()?;
        let (signature, _) = parts.next().read_bitvec_bytes()?;
        Ok((asked, signature))
    })
}

/// RFC 2986, 4.1: version, subject, key, attributes.
fn key_of(asked: BERReader<'_, '_>) -> ASN1Result<Vec<u8>> {
    asked.read_sequence(|parts| {
        parts.next().read_der()?;
        parts.next().read_der()?;
        let key = parts.next().read_sequence(|parts| {
            parts.next().read_der()?;
            Ok(parts.next().read_bitvec_bytes()?.0)
        })?;
        parts.read_optional(|attributes| attributes.read_der())?;
        Ok(key)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384};

    use super::*;

    fn request(key: &KeyPair) -> Vec<u8> {
        CertificateParams::default().serialize_request(key).unwrap().der().to_vec()
    }

    #[test]
    fn the_key_is_that_of_whoever_asks() {
        let key = KeyPair::generate().unwrap();
        assert_eq!(SigningRequest::read(&request(&key)).unwrap().der_bytes(), key.der_bytes());
        let other = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        assert!(SigningRequest::read(&request(&other)).is_err(), "another kind of key");
        let long = SigningRequest::read(&vec![0x30; LONGEST + 1]).err().map(|error| error.to_string());
        assert!(long.is_some_and(|told| told.contains("has more than")), "its length is looked at first");
    }

    proptest! {
        #[test]
        fn a_request_that_was_changed_is_refused(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let pair = KeyPair::generate().unwrap();
            let mut changed = request(&pair);
            let at = at.index(changed.len());
            changed[at] ^= 1 << bit;
            let read = SigningRequest::read(&changed);
            // What names the algorithm is not signed, and does not count.
            prop_assert!(read.map_or(true, |read| read.der_bytes() == pair.der_bytes()));
        }

        #[test]
        fn whatever_comes_is_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(SigningRequest::read(&bytes).is_err());
        }
    }
}
