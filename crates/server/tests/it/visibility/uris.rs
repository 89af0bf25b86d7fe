//! URIs of hidden resources and templates, and of the visible ones beside them.

use std::time::Duration;

use mrtr_server::{
    CacheControl, ChangeNotifier, Context, RequestParts, Resource, ResourceTemplate, Server,
    ServerBuilder,
};
use mrtr_testkit::TestClock;
use serde_json::{Value, json};

use super::{Page, builder, ids, is_admin, page, send};
use crate::support::replica;

/// Handlers get decoded values, so that another spelling of a URI may mean the same to the handler
/// of another template.
#[tokio::test]
async fn other_spellings_of_a_hidden_uri_are_hidden_too() {
    let read = async |server: &Server, scopes: &[&str], uri: &str| {
        let read = send(server, scopes, "resources/read", json!({ "uri": uri })).await;
        let text = read.pointer("/contents/0/text").or_else(|| read.pointer("/error/message"));
        text.and_then(Value::as_str).unwrap().to_owned()
    };
    let server = builder().build().unwrap();
    for (uri, value) in [
        ("doc://s%65cret/4", "secret/4"),
        ("doc://secret%2F4", "secret/4"),
        ("doc://%73ecret%2f4", "secret/4"),
        ("doc://s%65cret/a%2Fb", "secret/a/b"),
        ("doc://all/%73ecret", "all/secret"),
        ("doc://all%2Fsecret", "all/secret"),
    ] {
        assert_eq!(read(&server, &[], uri).await, "Resource not found", "{uri}");
        assert_eq!(read(&server, &["admin"], uri).await, value, "{uri}");
    }
    for (uri, value) in [
        ("doc://secrets/4", "secrets/4"),
        ("doc://z%C3%BCrich/4", "zürich/4"),
        ("doc://a%2Fb", "a/b"),
        ("doc://s%2565cret/4", "s%65cret/4"),
    ] {
        assert_eq!(read(&server, &[], uri).await, value, "{uri}");
    }
}

/// Begins a server with a hidden resource, or a hidden template.
fn hiding(uri: &str) -> ServerBuilder {
    let server = replica(&TestClock::default());
    if uri.contains('{') {
        let template = ResourceTemplate::new(uri, "hidden", page);
        return server.resource_template(template.visible_to(is_admin));
    }
    server.resource(Resource::new(uri, "hidden", async || "4").visible_to(is_admin))
}

/// A broader template may ignore what another one does not, and its handler gets the hidden value.
#[tokio::test]
async fn query_or_slash_does_not_uncover_a_hidden_uri() {
    for (hidden, uri) in [
        ("doc://secret/{id}", "doc://secret/4?lang=en"),
        ("doc://secret/{id}", "doc://secret/4?"),
        ("doc://secret/{id}", "doc://s%65cret/4?x=%ff"),
        ("doc://secret/{id}", "doc://secret//4"),
        ("doc://secret/{id}", "doc://secret%5C4"),
        ("doc://secret/{+id}", "doc://secret//4"),
        ("doc://secret/{id}{?q}", "doc://secret/4?q=.."),
        ("doc://z%C3%BCrich/{id}", "doc://z%c3%bcrich/4"),
        ("doc://z%C3%BCrich/4", "doc://z%c3%bcrich/4#x"),
        ("doc://secret/4", "doc://secret/4?lang=en"),
        ("doc://secret/4", "doc://secret//4"),
        ("doc://secret/{id}", "doc://secret/4/"),
        ("doc://secret/4", "doc://secret/4%2F"),
        ("doc://secret/4", "doc://secret/4%5C%5C"),
        ("doc://secret/4", "doc://secret/4#x"),
        ("doc://secret/{id}", "doc://secret/4#?lang=en"),
        ("doc://secret/4", "doc://secret/4%23x"),
        ("doc://secret/4", "doc://secret/4%3Fx"),
        ("doc://secret/4", "doc://s%65cret//4%2F%23x?lang=en"),
        ("doc://secret/4", "doc://secret/4%3Fx%23y"),
        ("doc://secret/{id}/all", "doc://secret/4%23x/all"),
        ("doc://secret/{id}/all", "doc://secret/4/all%23x"),
        ("doc://secret/{id}/", "doc://secret/4%2F"),
        ("doc://secret/{id}/", "doc://secret/4%2F%2F?lang=en"),
        ("doc://secret/4?lang=en", "doc://secret/4?x=1&lang=en"),
        ("doc://secret/4?lang=en", "doc://secret/4?lang=%65n"),
        ("doc://secret/4?lang=en", "doc://secret/4?lang=en#x"),
        ("doc://secret/4?lang=en", "doc://secret/4?lang=en%23x"),
        ("doc://secret/4?lang=en", "doc://secret/4?lang=en%2F"),
        ("doc://secret/4?lang=en", "doc://secret/4?lang=fr&lang=en"),
        ("doc://secret/4?lang=en&page=2", "doc://secret/4?page=2&lang=en"),
        ("doc://secret/4?page=2&lang=en", "doc://secret/4?lang=en&page=2"),
        ("doc://secret/4?lang=en", "doc://secret/4?lang=en&page="),
        ("doc://secret/{id}?lang=en", "doc://secret/4?page=2&lang=en"),
        ("doc://secret/{id}?page={p}&lang=en", "doc://secret/4?lang=en&page=2"),
        ("doc://secret/{id}/", "doc://secret/4"),
        ("doc://secret/{id}", "doc://sec%09ret/4%0A"),
        ("doc://secret/{id}", "doc://SECRET/4"),
        ("doc://z%C3%BCrich/{id}", "doc://Z%C3%9CRICH/4"),
        ("doc://stra%C3%9Fe/{id}", "doc://STRASSE/4"),
        ("doc://stra%C3%9Fe/{id}", "doc://STRA%E1%BA%9EE/4"),
        ("doc://%CF%82/{id}", "doc://%CE%A3/4"),
        ("doc://secret/team/{+id}", "doc://secret/team//x://y"),
        ("doc://secret/", "doc://secret"),
    ] {
        let server = hiding(hidden);
        let broad = ResourceTemplate::new("doc://{+id}{?lang,page}", "broad", page);
        let server = server.resource_template(broad).build().unwrap();
        let read = async |scopes: &[&str]| {
            send(&server, scopes, "resources/read", json!({ "uri": uri })).await
        };
        let error = &read(&[]).await["error"]["message"];
        assert_eq!(error, "Resource not found", "{hidden} {uri}");
        assert!(read(&["admin"]).await["contents"].is_array(), "{hidden} {uri}");
    }
}

/// A shared cache must not give it to others.
#[tokio::test]
async fn other_spelling_of_a_hidden_uri_is_private() {
    let public = CacheControl::public(Duration::from_secs(2));
    let server = hiding("doc://secret/{id}")
        .resource_template(ResourceTemplate::new("doc://{+id}", "broad", page).cache(public))
        .build()
        .unwrap();
    for (uri, scope) in [("doc://secret//4", "private"), ("doc://open/4", "public")] {
        let read = send(&server, &["admin"], "resources/read", json!({ "uri": uri })).await;
        assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(2_000), &json!(scope)), "{uri}");
    }
}

/// Its path has no variable, and the values of its query have spellings.
#[tokio::test]
async fn query_of_a_template_does_not_uncover_a_hidden_resource() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Search {
        q: String,
    }
    for hidden in ["doc://search?q=secret", "doc://search?q=sec{id}"] {
        let server = hiding(hidden);
        let search = async |_: Context, search: Search| search.q;
        let server = server
            .resource_template(ResourceTemplate::new("doc://search{?q,page}", "search", search))
            .build()
            .unwrap();
        for (q, is_hidden) in [
            ("secret", true),
            ("%73ecret", true),
            ("secret%23x", true),
            ("secret&page=1", true),
            ("other", false),
            ("other&page=secret", false),
        ] {
            let params = json!({ "uri": format!("doc://search?q={q}") });
            let read = send(&server, &[], "resources/read", params).await;
            assert_eq!(read["contents"].is_null(), is_hidden, "{hidden} {q}: {read}");
        }
    }
}

/// Its handler gets the whole text, and may use it as a URL.
#[tokio::test]
async fn query_in_a_value_does_not_uncover_a_hidden_resource() {
    let hidden = Resource::new("doc://secret/4?lang=en", "hidden", async || "4");
    let server = replica(&TestClock::default())
        .resource(hidden.visible_to(is_admin))
        .resource_template(ResourceTemplate::new("doc://{+id}", "broad", page))
        .build()
        .unwrap();
    for (uri, is_hidden) in [
        ("doc://secret/4?x=1&lang=en", true),
        ("doc://secret/4/?lang=en", true),
        ("doc://secret/4?lang=en&", true),
        ("doc://secret/4?lang=de", false),
    ] {
        let read = send(&server, &[], "resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["contents"].is_null(), is_hidden, "{uri}: {read}");
    }
}

/// What only resembles a URI does not make it visible.
#[tokio::test]
async fn visible_feature_that_resembles_a_uri_does_not_uncover_a_hidden_one() {
    for (visible, hidden, broad, uri) in [
        (
            "doc://secret/{id}?public=1",
            "doc://secret/{id}?lang=en",
            "doc://{+id}{?lang,public}",
            "doc://secret/4?lang=en&public=1",
        ),
        (
            "doc://search?zpage={id}",
            "doc://search?q=sec{id}",
            "doc://search{?id,q,zpage}",
            "doc://search?id=1&q=%73ecret&zpage=1",
        ),
        ("doc://name/{id}", "doc://Name/{id}", "doc://{+id}", "doc://%4Eame/4"),
        (
            "doc://open/{id}",
            "doc://{id}.Secret/{x}",
            "doc://{+id}{?lang}",
            "doc://a.Secret/4?lang=en",
        ),
        ("doc://open/{id}", "doc://a%0Ab/{id}", "doc://{+id}", "doc://a%0ab/4#"),
        (
            "doc://open/{id}",
            "doc://secret/{id}?lang=en",
            "doc://{+id}{?lang}",
            "doc://s%65cret/a%2Fb?lang=en",
        ),
        (
            "doc://open/{id}",
            "doc://search?q=sec{id}",
            "doc://search{?q,id}",
            "doc://search?id=1&q=sec%2Fx",
        ),
    ] {
        let template = |uri: &str| ResourceTemplate::new(uri, uri, async |_: Context| "read");
        let server = replica(&TestClock::default())
            .resource_template(template(visible))
            .resource_template(template(hidden).visible_to(is_admin))
            .resource_template(template(broad))
            .build()
            .unwrap();
        let read = async |scopes: &[&str]| {
            send(&server, scopes, "resources/read", json!({ "uri": uri })).await
        };
        assert_eq!(read(&[]).await["error"]["message"], "Resource not found", "{uri}");
    }
}

/// Of two resources whose URIs mean the same, the hidden one decides.
#[tokio::test]
async fn visible_resource_does_not_uncover_a_hidden_one() {
    let server = replica(&TestClock::default())
        .resource(Resource::new("doc://a%2Fb", "visible", async || "visible"))
        .resource(Resource::new("doc://a/b", "hidden", async || "hidden").visible_to(is_admin))
        .resource_template(ResourceTemplate::new("doc://{+id}", "broad", page))
        .build()
        .unwrap();
    for (uri, is_hidden) in [("doc://%61/b", true), ("doc://a%2Fb", false), ("doc://a/c", false)] {
        let read = send(&server, &[], "resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["contents"].is_null(), is_hidden, "{uri}: {read}");
    }
}

/// A disabled feature decides who sees its URI, and never who sees the template behind it.
#[tokio::test]
async fn disabled_feature_does_not_uncover_a_hidden_template() {
    let is_staff = |caller: &RequestParts| caller.has_scope("staff");
    let server = replica(&TestClock::default())
        .updatable::<Resource>()
        .changes(ChangeNotifier::default())
        .resource(Resource::new("doc://team/a", "a", async || "a").visible_to(is_staff))
        .resource_template(
            ResourceTemplate::new("doc://{+id}", "all", page)
                .complete("id", ids)
                .visible_to(is_admin),
        )
        .build()
        .unwrap();
    let argument = json!({ "name": "id", "value": "" });
    let reference = json!({ "type": "ref/resource", "uri": "doc://team/a" });
    let complete = json!({ "ref": reference, "argument": argument });
    let expect = async |method: &str, params: &Value| {
        let staff = send(&server, &["staff"], method, params.clone()).await;
        assert_eq!(staff["error"]["code"], -32602, "{staff}");
        let both = send(&server, &["staff", "admin"], method, params.clone()).await;
        assert!(both.get("error").is_none(), "{both}");
    };
    expect("completion/complete", &complete).await;
    let disable = |update: &mut mrtr_server::ServerUpdate| {
        update.disable::<Resource>("doc://team/a");
        Ok(())
    };
    server.update(disable).unwrap();
    expect("completion/complete", &complete).await;
    for uri in [
        "doc://team/a",
        "doc://team/a?lang=en",
        "doc://team//a",
        "doc://t%65am/a",
        "doc://team/a%23",
    ] {
        expect("resources/read", &json!({ "uri": uri })).await;
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Values {
    #[expect(dead_code, reason = "the tests only look at whether it is read")]
    id: Option<String>,
    #[expect(dead_code, reason = "the tests only look at whether it is read")]
    x: Option<String>,
}

/// What hides a URI is no broader than what its handler may mistake for it: the author chose the
/// text of the visible template, so only values may have other spellings.
#[tokio::test]
async fn visible_uris_beside_hidden_ones_are_served() {
    for (templates, uri) in [
        ([("doc://page?rev={id}", true), ("doc://{id}", false)], "doc://page?rev=2"),
        ([("file:///{+id}", false), ("file://share/{+id}", true)], "file://share/a"),
        ([("files://{id}/", true), ("files://{id}", false)], "files://a/"),
        ([("files://{id}", false), ("files://{id}/", true)], "files://a/"),
        ([("files://a", false), ("files://{id}/", true)], "files://a/"),
        ([("doc://a#{id}", true), ("doc://a", false)], "doc://a#top"),
        ([("doc://a{?id}", true), ("doc://a", false)], "doc://a?id=1"),
        ([("doc://open/{id}", true), ("doc://{+id}", false)], "doc://open/a%2Fb"),
        ([("doc://open/{id}", true), ("doc://{+id}", false)], "doc://open/a%23b"),
        ([("doc://{id}", false), ("doc://open/{id}{?q}", true)], "doc://open/1?q=a%2Fb"),
        ([("doc://{id}/", false), ("doc://{id}", true)], "doc://a"),
        (
            [("doc://{id}?fmt=pdf", false), ("doc://{id}?fmt=pdf&page={x}", true)],
            "doc://a?fmt=pdf&page=2",
        ),
        (
            [("doc://a?fmt=pdf", false), ("doc://a?fmt=pdf&page={id}", true)],
            "doc://a?fmt=pdf&page=2",
        ),
        ([("doc://%6Fpen/{id}", true), ("doc://open/{id}", false)], "doc://%6Fpen/a%23b"),
    ] {
        let server = templates.iter().fold(replica(&TestClock::default()), |server, one| {
            if !one.0.contains('{') {
                let hidden = Resource::new(one.0, one.0, async || "hidden");
                return server.resource(hidden.visible_to(is_admin));
            }
            let template =
                ResourceTemplate::new(one.0, one.0, async |_: Context, _: Values| "served");
            server.resource_template(if one.1 { template } else { template.visible_to(is_admin) })
        });
        let read = json!({ "uri": uri });
        let read = send(&server.build().unwrap(), &[], "resources/read", read).await;
        assert_eq!(read["contents"][0]["text"], "served", "{uri}: {read}");
    }
}

#[tokio::test]
async fn first_feature_that_matches_a_uri_decides_also_while_it_is_disabled() {
    let named = |uri: &str, name: &'static str| {
        ResourceTemplate::new(uri, name, move |_: Context, _: Page| async move { name })
    };
    let server = replica(&TestClock::default())
        .updatable::<Resource>()
        .resource_template(named("doc://secret/open/{id}", "narrow").complete("id", ids))
        .resource(Resource::new("doc://secret/r", "r", async || "r").visible_to(is_admin))
        .resource_template(named("doc://secret/{+id}", "secret").visible_to(is_admin))
        .resource_template(named("doc://{+id}", "broad").complete("id", ids))
        .build()
        .unwrap();
    let read = async |scopes: &[&str], uri: &str| {
        let read = send(&server, scopes, "resources/read", json!({ "uri": uri })).await;
        read.pointer("/contents/0/text").and_then(Value::as_str).map(str::to_owned)
    };
    for disabled in [false, true] {
        let [for_admins, for_admins_r] =
            if disabled { ["broad", "broad"] } else { ["secret", "r"] };
        for (uri, others, admins) in [
            ("doc://secret/open/1", Some("narrow"), "narrow"),
            ("doc://secret/op%65n/1", None, for_admins),
            ("doc://secret/x", None, for_admins),
            ("doc://secret/r", None, for_admins_r),
            ("doc://x", Some("broad"), "broad"),
        ] {
            assert_eq!(read(&[], uri).await.as_deref(), others, "{uri}, disabled: {disabled}");
            assert_eq!(read(&["admin"], uri).await.as_deref(), Some(admins), "{uri} {disabled}");
        }
        let argument = json!({ "name": "id", "value": "" });
        let reference = json!({ "type": "ref/resource", "uri": "doc://secret/open/{id}" });
        let params = json!({ "ref": reference, "argument": argument });
        let completed = send(&server, &[], "completion/complete", params).await;
        assert_eq!(completed["completion"]["values"][0], "7", "{completed}");
        let disable = server.update(|update| {
            update.disable::<Resource>("doc://secret/r");
            update.disable::<ResourceTemplate>("doc://secret/{+id}");
            Ok(())
        });
        disable.unwrap();
    }
}
