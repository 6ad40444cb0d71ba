//! Users and tokens on the wire.

use headway_api::v1;

use super::time;
use crate::store::{Token, User};

pub fn token(of: &Token) -> v1::Token {
    v1::Token {
        id: of.id,
        name: of.name.clone(),
        user: of.user.clone(),
        scope: of.scope,
        created_at: time(of.created_at),
        expires_at: of.expires_at.map(time),
    }
}

pub fn user(of: &User) -> v1::User {
    v1::User { name: of.name.clone(), role: of.role, created_at: time(of.created_at), tokens: of.tokens }
}
