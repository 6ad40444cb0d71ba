//! What an installation says of its identity provider: a file in TOML.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use headway_api::secret::Secret;
use headway_types::{ProjectRole, TokenScope};
use reqwest::Url;
use serde::Deserialize;

/// Whom the server lets log in, through whom, and as what.
#[derive(Clone, Debug)]
pub struct OidcSettings {
    pub issuer: String,
    pub client_id: String,
    /// Absent of a public client, which has PKCE alone.
    pub client_secret: Option<Secret>,
    /// Where people reach this server; absent: as it tells of itself.
    pub url: Option<String>,
    pub scopes: Vec<String>,
    pub groups_claim: String,
    pub user_claim: String,
    /// Whoever logs in is in one of these; empty: whomever the provider knows.
    pub required_groups: BTreeSet<String>,
    /// Of whoever is in no group that gives a role.
    pub default_role: TokenScope,
    pub session_hours: f64,
    pub token_hours: f64,
    /// The provider's own authorities, in PEM, in place of the system's.
    pub authorities: Option<Vec<u8>>,
    /// Roles by group.
    pub roles: BTreeMap<String, TokenScope>,
    /// Roles by project and group.
    pub projects: BTreeMap<String, BTreeMap<String, ProjectRole>>,
}

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}: {message}")]
    Wrong { path: PathBuf, message: String },
    #[error("making ready to ask the identity provider")]
    Client(#[source] reqwest::Error),
    #[error("{0}")]
    Provider(String),
}

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    issuer: String,
    client_id: String,
    client_secret_file: Option<PathBuf>,
    url: Option<String>,
    #[serde(default = "usual_scopes")]
    scopes: Vec<String>,
    #[serde(default = "usual_groups_claim")]
    groups_claim: String,
    #[serde(default = "usual_user_claim")]
    user_claim: String,
    #[serde(default)]
    required_groups: BTreeSet<String>,
    #[serde(default = "usual_role")]
    default_role: TokenScope,
    #[serde(default = "usual_hours")]
    session_hours: f64,
    #[serde(default = "usual_hours")]
    token_hours: f64,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    roles: BTreeMap<String, TokenScope>,
    #[serde(default)]
    projects: BTreeMap<String, BTreeMap<String, ProjectRole>>,
}

fn usual_scopes() -> Vec<String> {
    ["openid", "profile", "groups"].map(str::to_owned).to_vec()
}

fn usual_groups_claim() -> String {
    "groups".into()
}

fn usual_user_claim() -> String {
    "preferred_username".into()
}

fn usual_role() -> TokenScope {
    TokenScope::Viewer
}

fn usual_hours() -> f64 {
    12.0
}

impl OidcSettings {
    /// # Errors
    /// Where the file, or one that it names, cannot be read, or says what cannot be.
    pub fn read(path: &Path) -> Result<Self, OidcError> {
        let text = read(path)?;
        let wrong = |message: String| OidcError::Wrong { path: path.to_owned(), message };
        let written: Written = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        written.check().map_err(wrong)?;
        // Relative to the file that names them.
        let beside = |file: &PathBuf| path.parent().unwrap_or(Path::new("")).join(file);
        let client_secret = match written.client_secret_file.as_ref().map(beside) {
            None => None,
            Some(file) => {
                let secret = read(&file)?.trim().to_owned();
                if secret.is_empty() {
                    return Err(OidcError::Wrong { path: file, message: "it is empty".into() });
                }
                Some(Secret::new(secret))
            }
        };
        let authorities =
            written.ca_file.as_ref().map(|file| read(&beside(file)).map(String::into_bytes)).transpose()?;
        let Written { issuer, client_id, url, mut scopes, groups_claim, user_claim, required_groups, .. } = written;
        if !scopes.iter().any(|scope| scope == "openid") {
            scopes.insert(0, "openid".into());
        }
        Ok(Self {
            issuer,
            client_id,
            client_secret,
            url: url.map(|url| url.trim_end_matches('/').to_owned()),
            scopes,
            groups_claim,
            user_claim,
            required_groups,
            default_role: written.default_role,
            session_hours: written.session_hours,
            token_hours: written.token_hours,
            authorities,
            roles: written.roles,
            projects: written.projects,
        })
    }
}

impl Written {
    fn check(&self) -> Result<(), String> {
        let issuer = may_be_asked(&self.issuer, true).map_err(|why| format!("issuer {why}"))?;
        if issuer.query().is_some() || issuer.fragment().is_some() {
            return Err("issuer has no query and no fragment".into());
        }
        if let Some(url) = &self.url {
            let read = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            if read.is_none_or(|url| url.path() != "/" || url.query().is_some() || url.fragment().is_some()) {
                return Err(format!("url {url} is no address of this server: https://HOST[:PORT]"));
            }
        }
        for (name, text) in
            [("client_id", &self.client_id), ("groups_claim", &self.groups_claim), ("user_claim", &self.user_claim)]
        {
            if text.trim().is_empty() {
                return Err(format!("{name} is empty"));
            }
        }
        if let Some(scope) = self.scopes.iter().find(|scope| scope.is_empty() || scope.contains(char::is_whitespace)) {
            return Err(format!("\"{scope}\" is no scope"));
        }
        for (name, hours) in [("session_hours", self.session_hours), ("token_hours", self.token_hours)] {
            if !(0.01..=720.0).contains(&hours) {
                return Err(format!("{name} must be 0.01 to 720"));
            }
        }
        if self.roles.values().chain([&self.default_role]).any(|role| *role == TokenScope::Agent) {
            return Err("a role is viewer, user, operator or admin".into());
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<String, OidcError> {
    std::fs::read_to_string(path).map_err(|source| OidcError::Read { path: path.to_owned(), source })
}

/// Whether this may be asked: by TLS, or on this machine where its issuer is there too (`plain`: it is).
pub(super) fn may_be_asked(url: &str, plain: bool) -> Result<Url, String> {
    let read = Url::parse(url).map_err(|error| format!("{url}: {error}"))?;
    if !read.username().is_empty() || read.password().is_some() {
        return Err(format!("{url} carries a password"));
    }
    match read.scheme() {
        "https" => Ok(read),
        "http" if plain && is_loopback(&read) => Ok(read),
        "http" if plain => Err(format!("{url} leaves this machine without TLS")),
        _ => Err(format!("{url} is not https")),
    }
}

pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn written(text: &str) -> Result<OidcSettings, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "hush\n").unwrap();
        std::fs::write(dir.path().join("empty"), "\n").unwrap();
        let file = dir.path().join("oidc.toml");
        std::fs::write(&file, text).unwrap();
        OidcSettings::read(&file).map_err(|error| error.to_string())
    }

    const LEAST: &str = "issuer = \"https://sso.example/realms/lab\"\nclient_id = \"headway\"\n";

    #[test]
    fn two_lines_are_enough_and_the_rest_is_usual() {
        let least = written(LEAST).unwrap();
        assert_eq!((least.user_claim.as_str(), least.groups_claim.as_str()), ("preferred_username", "groups"));
        assert_eq!((least.default_role, least.client_secret), (TokenScope::Viewer, None));
        assert_eq!(least.scopes, ["openid", "profile", "groups"]);
    }

    #[test]
    fn a_whole_file_is_read_and_its_secret_is_never_printed() {
        let whole = format!(
            "{LEAST}client_secret_file = \"secret\"\nurl = \"https://headway.example:7600/\"\nscopes = [\"email\"]\n\
             required_groups = [\"staff\"]\ndefault_role = \"user\"\n[roles]\nops = \"operator\"\n[projects.nlp]\nteam = \"user\"\n"
        );
        let whole = written(&whole).unwrap();
        assert_eq!(whole.url.as_deref(), Some("https://headway.example:7600"));
        assert_eq!(whole.scopes, ["openid", "email"]);
        assert_eq!(whole.projects["nlp"]["team"], ProjectRole::User);
        assert!(!format!("{whole:?}").contains("hush"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        for (line, told) in [
            ("issuer = \"http://sso.example\"\nclient_id = \"a\"", "without TLS"),
            ("issuer = \"https://me:pw@sso.example\"\nclient_id = \"a\"", "password"),
            ("issuer = \"https://sso.example?x=1\"\nclient_id = \"a\"", "no query"),
            ("issuer = \"https://sso.example\"\nclient_id = \"\"", "client_id"),
            ("issuer = \"https://sso.example\"", "client_id"),
            (&format!("{LEAST}url = \"https://headway.example/x\""), "no address"),
            (&format!("{LEAST}token_hours = 0.0"), "token_hours"),
            (&format!("{LEAST}default_role = \"agent\""), "a role is"),
            (&format!("{LEAST}client_secret_file = \"empty\""), "empty"),
            (&format!("{LEAST}client_secret_file = \"none\""), "reading"),
            (&format!("{LEAST}secret = \"hush\""), "unknown field"),
            (&format!("{LEAST}[roles]\nops = \"king\""), "king"),
        ] {
            let refused = written(line).unwrap_err();
            assert!(refused.contains(told), "{line}: {refused}");
        }
        assert!(written("issuer = \"http://127.0.0.1:9\"\nclient_id = \"a\"").is_ok(), "on this machine");
    }
}
