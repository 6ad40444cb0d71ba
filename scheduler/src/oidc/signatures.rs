//! Signatures of id tokens, checked with ring, which the tree has below rustls. What jsonwebtoken could bring itself is aws-lc, a second C library, or the crate
//! `rsa`, which has a known vulnerability. Nothing is signed here, and a shared secret verifies nothing.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

/// What a provider may sign with. No `none`, and no HMAC, for which whoever knows the public key could sign.
pub(super) const ALLOWED: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(Error::from(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: |algorithm, key| {
        Ok(Box::new(Verifier { algorithm: *algorithm, how: how(*algorithm)?, key: key.clone() }))
    },
    key_utils: KeyUtils::new_unimplemented(),
};

/// Has jsonwebtoken check by ring from now on.
pub(super) fn install() {
    // Fails only if it is installed already, which is as good.
    let _ = RING.install_default();
}

enum How {
    Rsa(&'static RsaParameters),
    Raw(&'static dyn VerificationAlgorithm),
}

fn how(algorithm: Algorithm) -> Result<How, Error> {
    Ok(match algorithm {
        Algorithm::RS256 => How::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => How::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => How::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => How::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => How::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => How::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => How::Raw(&signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => How::Raw(&signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => How::Raw(&signature::ED25519),
        _ => return Err(Error::from(ErrorKind::UnsupportedAlgorithm)),
    })
}

struct Verifier {
    algorithm: Algorithm,
    how: How,
    key: DecodingKey,
}

impl JwtVerifier for Verifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl ::signature::Verifier<Vec<u8>> for Verifier {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), ::signature::Error> {
        let verified = match (&self.how, self.key.kind()) {
            (How::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signed)
            }
            (How::Raw(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(*algorithm, key).verify(message, signed)
            }
            _ => return Err(::signature::Error::new()),
        };
        verified.map_err(|_| ::signature::Error::new())
    }
}
