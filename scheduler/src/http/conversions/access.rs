//! Tokens on the wire.

use headway_api::v1;

use super::time;
use crate::store::{Scope, Token};

pub fn token(of: &Token) -> v1::Token {
    v1::Token {
        id: of.id,
        name: of.name.clone(),
        scope: match of.scope {
            Scope::Agent => v1::TokenScope::Agent,
            Scope::Viewer => v1::TokenScope::Viewer,
            Scope::User => v1::TokenScope::User,
            Scope::Admin => v1::TokenScope::Admin,
        },
        created_at: time(of.created_at),
        expires_at: of.expires_at.map(time),
    }
}

pub fn scope(of: v1::TokenScope) -> Scope {
    match of {
        v1::TokenScope::Agent => Scope::Agent,
        v1::TokenScope::Viewer => Scope::Viewer,
        v1::TokenScope::User => Scope::User,
        v1::TokenScope::Admin => Scope::Admin,
    }
}
