//! Users, tokens and browser sessions on the wire.

use headway_api::v1;
use headway_engine::record::{UserLoad, UserQuota};

use super::time;
use crate::store::{BrowserSession, SecretOwnerKind, SecretRow, Token, User};

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

/// `current`: the session that asks, where one does.
pub fn browser_session(of: &BrowserSession, current: Option<uuid::Uuid>) -> v1::BrowserSession {
    v1::BrowserSession {
        id: of.id,
        user: of.user.clone(),
        token_id: of.token,
        created_at: time(of.created_at),
        used_at: time(of.used_at),
        expires_at: time(of.expires_at),
        ends_at: time(of.ends_at),
        current: current == Some(of.id),
    }
}

/// `used`: where its reader may know.
pub fn user(of: &User, quota: UserQuota, used: Option<UserLoad>) -> v1::User {
    v1::User {
        name: of.name.clone(),
        role: of.role,
        created_at: time(of.created_at),
        tokens: of.tokens,
        role_from: if of.role_from_groups { v1::RoleSource::Groups } else { v1::RoleSource::Hand },
        linked: of.linked,
        quota: Some(super::policy::quota(quota)),
        used: used.map(|load| v1::UserLoad { unfinished_jobs: load.jobs, specification_bytes: load.bytes }),
    }
}

pub fn secret(of: SecretRow) -> v1::Secret {
    v1::Secret {
        scope: match of.id.owner.kind() {
            SecretOwnerKind::User => v1::SecretScope::User,
            SecretOwnerKind::Project => v1::SecretScope::Project,
        },
        owner: of.id.owner.name().to_owned(),
        name: of.id.name,
        set_at: time(of.set_at),
        set_by: of.set_by,
        used_at: of.used_at.map(time),
    }
}
