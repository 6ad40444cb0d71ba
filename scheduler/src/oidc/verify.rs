//! What of an id token is believed: that this issuer signed it, for this client, a moment ago, for this login.

use std::collections::BTreeSet;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::signatures::{self, ALLOWED};

/// How far the provider's clock may be off, in seconds.
const LEEWAY: u64 = 30;
/// An id token that was signed longer ago is no answer to what was asked just now.
const FRESH: u64 = 600;
/// Providers keep two or three keys.
const KEYS_AT_MOST: usize = 64;

/// Whom an id token is from and for.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    /// `None`: of a device login, which has none.
    pub nonce: Option<&'a str>,
}

/// What the provider says of a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    pub subject: String,
    pub all: Map<String, Value>,
}

/// Why an id token is not believed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the id token is no signed token: {0}")]
    Form(String),
    #[error("the id token is signed with {0}, which is not accepted")]
    Algorithm(String),
    /// The keys may have changed since they were read.
    #[error("no key of the provider fits the id token")]
    UnknownKey,
    #[error("the id token is not believed: {0}")]
    Claims(&'static str),
    #[error("the id token is not believed: {0}")]
    Token(#[from] jsonwebtoken::errors::Error),
}

/// The keys that a provider signs with.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<Jwk>);

impl Keys {
    /// What is no key for signatures, or of a kind that is not known here, is left out.
    pub fn read(document: &Value) -> Option<Self> {
        let keys = document.get("keys")?.as_array()?.iter().take(KEYS_AT_MOST);
        let keys = keys.filter_map(|key| serde_json::from_value::<Jwk>(key.clone()).ok());
        let signs = |key: &Jwk| {
            let kind = &key.algorithm;
            let public = !matches!(kind, AlgorithmParameters::OctetKey(_) | AlgorithmParameters::Other(_));
            public && key.common.public_key_use.as_ref().is_none_or(|one| *one == PublicKeyUse::Signature)
        };
        Some(Self(keys.filter(signs).collect()))
    }

    /// Keys that may have signed with this algorithm under this name.
    fn fitting(&self, algorithm: Algorithm, id: Option<&str>) -> impl Iterator<Item = &Jwk> {
        self.0.iter().filter(move |key| {
            let named = id.is_none_or(|id| key.common.key_id.as_deref() == Some(id));
            let meant = key.common.key_algorithm.is_none_or(|one| one.to_string() == format!("{algorithm:?}"));
            named && meant && fits(algorithm, &key.algorithm)
        })
    }
}

fn fits(algorithm: Algorithm, key: &AlgorithmParameters) -> bool {
    match (algorithm, key) {
        (Algorithm::ES256, AlgorithmParameters::EllipticCurve(key)) => key.curve == EllipticCurve::P256,
        (Algorithm::ES384, AlgorithmParameters::EllipticCurve(key)) => key.curve == EllipticCurve::P384,
        (Algorithm::EdDSA, AlgorithmParameters::OctetKeyPair(key)) => key.curve == EllipticCurve::Ed25519,
        (Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA, _) => false,
        (_, key) => matches!(key, AlgorithmParameters::RSA(_)),
    }
}

/// The claims that are checked here, beside those that jsonwebtoken checks.
#[derive(Deserialize)]
struct Checked {
    sub: String,
    iat: u64,
    aud: Value,
    azp: Option<String>,
    nonce: Option<String>,
}

/// Believes an id token, or says why not. `now`: seconds since 1970.
pub fn verify(token: &str, keys: &Keys, expected: Expected<'_>, now: u64) -> Result<Claims, TokenError> {
    signatures::install();
    let header = decode_header(token).map_err(|error| TokenError::Form(error.to_string()))?;
    if !ALLOWED.contains(&header.alg) {
        return Err(TokenError::Algorithm(format!("{:?}", header.alg)));
    }
    if header.crit.is_some() {
        return Err(TokenError::Claims("it has critical extensions, and none is known here"));
    }
    let mut validation = Validation::new(header.alg);
    validation.algorithms = vec![header.alg];
    validation.leeway = LEEWAY;
    validation.validate_nbf = true;
    validation.set_issuer(&[expected.issuer]);
    validation.set_audience(&[expected.client_id]);
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    let mut refused = TokenError::UnknownKey;
    for key in keys.fitting(header.alg, header.kid.as_deref()) {
        let read = DecodingKey::from_jwk(key).and_then(|key| decode::<Map<String, Value>>(token, &key, &validation));
        match read {
            Ok(read) => return checked(read.claims, expected, now),
            Err(error) => refused = error.into(),
        }
    }
    Err(refused)
}

fn checked(all: Map<String, Value>, expected: Expected<'_>, now: u64) -> Result<Claims, TokenError> {
    let read: Checked = serde_json::from_value(Value::Object(all.clone()))
        .map_err(|_| TokenError::Claims("a claim that it must have is missing or of another kind"))?;
    if read.sub.is_empty() || read.sub.len() > 255 || read.sub.contains('\0') {
        return Err(TokenError::Claims("its subject is no name"));
    }
    if read.iat > now + LEEWAY || read.iat + FRESH < now {
        return Err(TokenError::Claims("it was not signed just now"));
    }
    let several = read.aud.as_array().is_some_and(|all| all.len() > 1);
    let for_us = read.azp.as_deref().map(|party| party == expected.client_id);
    if !for_us.unwrap_or(!several) {
        return Err(TokenError::Claims("it was made for another client"));
    }
    if expected.nonce.is_some_and(|nonce| read.nonce.as_deref() != Some(nonce)) {
        return Err(TokenError::Claims("it answers another login (nonce)"));
    }
    Ok(Claims { subject: read.sub, all })
}

impl Claims {
    /// The text of a claim; a path with dots goes into objects, as Keycloak's `realm_access.roles`.
    fn find(&self, name: &str) -> Option<&Value> {
        self.all.get(name).or_else(|| {
            let mut path = name.split('.');
            let first = self.all.get(path.next()?)?;
            path.try_fold(first, |value, part| value.get(part))
        })
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.find(name)?.as_str()
    }

    /// A list of groups, or one; `None`: it says nothing of groups.
    pub fn groups(&self, name: &str) -> Option<BTreeSet<String>> {
        match self.find(name)? {
            Value::String(one) => Some(BTreeSet::from([one.clone()])),
            Value::Array(all) => Some(all.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    const EXPECTED: Expected<'static> =
        Expected { issuer: "https://sso.example", client_id: "headway", nonce: Some("n0nce") };

    fn now() -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    }

    fn encoded(value: &Value) -> String {
        URL_SAFE_NO_PAD.encode(value.to_string())
    }

    struct Signer(EcdsaKeyPair);

    impl Signer {
        fn new() -> Self {
            let random = SystemRandom::new();
            let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap())
        }

        fn keys(&self, id: &str) -> Keys {
            Keys::read(&json!({"keys": [self.key(id), {"kty": "fancy", "kid": "later"}]})).unwrap()
        }

        fn key(&self, id: &str) -> Value {
            let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
            let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
            json!({"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": id, "use": "sig", "alg": "ES256"})
        }

        fn signed(&self, header: &Value, claims: &Value) -> String {
            let message = format!("{}.{}", encoded(header), encoded(claims));
            let signed = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
            format!("{message}.{}", URL_SAFE_NO_PAD.encode(signed))
        }
    }

    fn header() -> Value {
        json!({"alg": "ES256", "kid": "one"})
    }

    /// What is right, with these claims in place of its own; null takes one away.
    fn claims(other: &Value) -> Value {
        let mut claims = json!({
            "iss": "https://sso.example", "aud": "headway", "sub": "u-1", "nonce": "n0nce", "iat": now(), "exp": now() + 300,
            "preferred_username": "ada", "groups": ["nlp"], "realm_access": {"roles": ["ops"]},
        });
        for (name, value) in other.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        claims
    }

    #[test]
    fn a_right_token_is_believed_and_says_who_and_which_groups() {
        let signer = Signer::new();
        let token = signer.signed(&header(), &claims(&json!({})));
        let read = verify(&token, &signer.keys("one"), EXPECTED, now()).unwrap();
        assert_eq!((read.subject.as_str(), read.text("preferred_username")), ("u-1", Some("ada")));
        assert_eq!(read.groups("groups").unwrap(), BTreeSet::from(["nlp".to_owned()]));
        assert_eq!(read.groups("realm_access.roles").unwrap(), BTreeSet::from(["ops".to_owned()]));
        assert_eq!(read.groups("none"), None);
        let several = signer.signed(&header(), &claims(&json!({"aud": ["headway", "other"], "azp": "headway"})));
        assert!(verify(&several, &signer.keys("one"), EXPECTED, now()).is_ok());
        let device = Expected { nonce: None, ..EXPECTED };
        let without = signer.signed(&header(), &claims(&json!({"nonce": null})));
        assert!(verify(&without, &signer.keys("one"), device, now()).is_ok());
    }

    #[test]
    fn what_is_wrong_in_any_one_claim_is_refused() {
        let signer = Signer::new();
        for wrong in [
            json!({"iss": "https://sso.example/"}),
            json!({"iss": null}),
            json!({"aud": "other"}),
            json!({"aud": ["other"]}),
            json!({"aud": ["headway", "other"]}),
            json!({"aud": null}),
            json!({"azp": "other"}),
            json!({"sub": null}),
            json!({"sub": ""}),
            json!({"sub": 7}),
            json!({"nonce": "another"}),
            json!({"nonce": null}),
            json!({"exp": now() - 60}),
            json!({"exp": "never"}),
            json!({"exp": null}),
            json!({"nbf": now() + 300}),
            json!({"iat": now() - 3_600}),
            json!({"iat": now() + 300}),
            json!({"iat": null}),
        ] {
            let token = signer.signed(&header(), &claims(&wrong));
            assert!(verify(&token, &signer.keys("one"), EXPECTED, now()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unsigned_and_wrongly_signed_tokens_are_refused() {
        let (signer, other) = (Signer::new(), Signer::new());
        let (keys, right) = (signer.keys("one"), claims(&json!({})));
        let none = format!("{}.{}.", encoded(&json!({"alg": "none"})), encoded(&right));
        assert!(matches!(verify(&none, &keys, EXPECTED, now()), Err(TokenError::Form(_))));
        // With the public key as the shared secret.
        let point = signer.0.public_key().as_ref().to_vec();
        let message = format!("{}.{}", encoded(&json!({"alg": "HS256", "kid": "one"})), encoded(&right));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &point);
        let mac = URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, message.as_bytes()));
        let forged = verify(&format!("{message}.{mac}"), &keys, EXPECTED, now());
        assert!(matches!(forged, Err(TokenError::Algorithm(_))), "{forged:?}");
        let stranger = other.signed(&header(), &right);
        assert!(matches!(verify(&stranger, &keys, EXPECTED, now()), Err(TokenError::Token(_))));
        let unknown = other.signed(&json!({"alg": "ES256", "kid": "two"}), &right);
        assert!(matches!(verify(&unknown, &keys, EXPECTED, now()), Err(TokenError::UnknownKey)));
        let another_kind = signer.signed(&json!({"alg": "RS256", "kid": "one"}), &right);
        assert!(matches!(verify(&another_kind, &keys, EXPECTED, now()), Err(TokenError::UnknownKey)));
        let critical = signer.signed(&json!({"alg": "ES256", "kid": "one", "crit": ["x"], "x": 1}), &right);
        assert!(verify(&critical, &keys, EXPECTED, now()).is_err());
        let token = signer.signed(&header(), &right);
        let (head, signature) = token.rsplit_once('.').unwrap();
        for torn in [head, &format!("{head}."), &format!("{head}.{}", &signature[1..]), "", "a.b.c", "..", "ä.b.c"] {
            assert!(verify(torn, &keys, EXPECTED, now()).is_err(), "{torn}");
        }
        let swapped = format!("{}.{}.{signature}", encoded(&header()), encoded(&claims(&json!({"sub": "u-2"}))));
        assert!(verify(&swapped, &keys, EXPECTED, now()).is_err());
    }

    #[test]
    fn a_key_for_another_purpose_or_a_shared_one_verifies_nothing() {
        let signer = Signer::new();
        let token = signer.signed(&header(), &claims(&json!({})));
        let mut key = signer.key("one");
        key["use"] = json!("enc");
        let shared = json!({"kty": "oct", "kid": "one", "k": "aHVzaA"});
        let keys = Keys::read(&json!({"keys": [key, shared]})).unwrap();
        assert!(matches!(verify(&token, &keys, EXPECTED, now()), Err(TokenError::UnknownKey)));
        let without_id = signer.signed(&json!({"alg": "ES256"}), &claims(&json!({})));
        assert!(verify(&without_id, &signer.keys("one"), EXPECTED, now()).is_ok());
    }

    #[test]
    fn other_kinds_of_keys_are_known() {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap();
        let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let keys = Keys::read(&json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x, "kid": "e"}]})).unwrap();
        let message = format!("{}.{}", encoded(&json!({"alg": "EdDSA", "kid": "e"})), encoded(&claims(&json!({}))));
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes())));
        assert!(verify(&token, &keys, EXPECTED, now()).is_ok());
    }
}
