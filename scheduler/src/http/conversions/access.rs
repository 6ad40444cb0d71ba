//! Tokens on the wire.

use headway_api::v1;

use super::time;
use crate::store::Token;

pub fn token(of: &Token) -> v1::Token {
    v1::Token {
        id: of.id,
        name: of.name.clone(),
        scope: of.scope,
        created_at: time(of.created_at),
        expires_at: of.expires_at.map(time),
    }
}
