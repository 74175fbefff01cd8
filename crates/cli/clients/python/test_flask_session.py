"""Our own checks of Flask-Session: sessions of a Flask application in the server."""

import datetime
import os
import threading
import time

import flask
import flask_session
import pytest
import redis

URL = os.environ["REDIS_URL"]


def application(**settings):
    app = flask.Flask("checks")
    app.config.update(SECRET_KEY="key", SESSION_TYPE="redis", SESSION_REDIS=redis.Redis.from_url(URL), TESTING=True)
    app.config.update(settings)
    flask_session.Session(app)

    @app.route("/set/<key>/<value>")
    def set_value(key, value):
        flask.session[key] = value
        return "set"

    @app.route("/get/<key>")
    def get_value(key):
        return str(flask.session.get(key, "absent"))

    @app.route("/pop/<key>")
    def pop_value(key):
        return str(flask.session.pop(key, "absent"))

    @app.route("/clear")
    def clear():
        flask.session.clear()
        return "cleared"

    @app.route("/regenerate")
    def regenerate():
        app.session_interface.regenerate(flask.session)
        return "regenerated"

    @app.route("/data")
    def data():
        flask.session["data"] = {"list": [1, 2.5, None, True], "text": "ä\u20ac", "deep": {"x": ["y"] * 100}}
        return "set"

    @app.route("/count")
    def count():
        flask.session["count"] = flask.session.get("count", 0) + 1
        return str(flask.session["count"])

    return app


@pytest.fixture()
def server():
    client = redis.Redis.from_url(URL)
    client.flushall()
    return client


def text(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.get_data(as_text=True)


@pytest.mark.parametrize("format", ["msgpack", "json"])
class TestFormats:
    @pytest.fixture()
    def client(self, server, format):
        return application(SESSION_SERIALIZATION_FORMAT=format).test_client()

    def test_a_value_is_read_by_the_next_request(self, client):
        assert text(client, "/set/a/1") == "set" and text(client, "/get/a") == "1"

    def test_an_absent_value(self, client):
        assert text(client, "/get/a") == "absent"

    def test_a_value_is_replaced(self, client):
        text(client, "/set/a/1"), text(client, "/set/a/2")
        assert text(client, "/get/a") == "2"

    def test_a_value_is_removed_and_others_stay(self, client):
        text(client, "/set/a/1"), text(client, "/set/b/2")
        assert text(client, "/pop/a") == "1"
        assert [text(client, "/get/a"), text(client, "/get/b")] == ["absent", "2"]

    def test_structured_data(self, client):
        text(client, "/data")
        assert "'y'" in text(client, "/get/data") and "ä\u20ac" in text(client, "/get/data")

    def test_requests_count(self, client):
        assert [text(client, "/count") for _ in range(50)] == [str(n) for n in range(1, 51)]

    def test_a_cleared_session_is_deleted(self, client, server):
        text(client, "/set/a/1")
        assert server.dbsize() == 1
        text(client, "/clear")
        assert server.dbsize() == 0 and text(client, "/get/a") == "absent"


class TestKeys:
    def test_a_session_is_one_key_with_the_prefix(self, server):
        text(application().test_client(), "/set/a/1")
        assert [key[:8] for key in server.scan_iter()] == [b"session:"]

    def test_another_prefix(self, server):
        text(application(SESSION_KEY_PREFIX="p:").test_client(), "/set/a/1")
        assert len(server.keys("p:*")) == 1

    def test_a_request_that_stores_nothing_makes_no_key(self, server):
        text(application().test_client(), "/get/a")
        assert server.dbsize() == 0

    def test_two_clients_have_two_sessions(self, server):
        app = application()
        one, two = app.test_client(), app.test_client()
        text(one, "/set/a/1"), text(two, "/set/a/2")
        assert [text(one, "/get/a"), text(two, "/get/a"), server.dbsize()] == ["1", "2", 2]

    def test_another_application_reads_the_session(self, server):
        one, two = application().test_client(), application().test_client()
        text(one, "/set/a/1")
        cookie = one.get_cookie("session")
        two.set_cookie("session", cookie.value)
        assert text(two, "/get/a") == "1"

    def test_regenerate_moves_the_session_to_a_new_key(self, server):
        client = application().test_client()
        text(client, "/set/a/1")
        before = server.keys()
        text(client, "/regenerate")
        assert text(client, "/get/a") == "1" and server.keys() != before and server.dbsize() == 1

    def test_a_session_of_another_database(self, server):
        other = redis.Redis.from_url(URL.replace("/0", "/3"))
        client = application(SESSION_REDIS=other).test_client()
        text(client, "/set/a/1")
        assert [server.dbsize(), other.dbsize(), text(client, "/get/a")] == [0, 1, "1"]

    def test_a_large_session(self, server):
        client = application().test_client()
        text(client, "/set/a/" + "x" * 60_000)
        assert len(text(client, "/get/a")) == 60_000


class TestDeadlines:
    def test_a_permanent_session_has_the_lifetime(self, server):
        client = application(PERMANENT_SESSION_LIFETIME=datetime.timedelta(seconds=100)).test_client()
        text(client, "/set/a/1")
        assert 98 <= server.ttl(server.keys()[0]) <= 100

    def test_a_request_renews_the_deadline(self, server):
        client = application(PERMANENT_SESSION_LIFETIME=datetime.timedelta(seconds=100)).test_client()
        text(client, "/set/a/1")
        server.expire(server.keys()[0], 10)
        text(client, "/set/b/1")
        assert server.ttl(server.keys()[0]) > 90

    def test_an_expired_session_is_absent(self, server):
        client = application().test_client()
        text(client, "/set/a/1")
        server.pexpire(server.keys()[0], 0)
        assert text(client, "/get/a") == "absent"

    def test_a_flushed_session_is_absent(self, server):
        client = application().test_client()
        text(client, "/set/a/1")
        server.flushdb()
        assert text(client, "/get/a") == "absent"


class TestConnections:
    def test_a_killed_connection_is_replaced(self, server):
        client = application().test_client()
        text(client, "/set/a/1")
        server.client_kill_filter(_type="normal", skipme=True)
        # The client sees that the connection is closed before its next command.
        time.sleep(0.2)
        assert text(client, "/get/a") == "1"

    def test_eight_threads(self, server):
        app, failed = application(), []

        def work(number):
            client = app.test_client()
            for turn in range(20):
                text(client, f"/set/a/{number}-{turn}")
                if text(client, "/get/a") != f"{number}-{turn}":
                    failed.append((number, turn))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        assert not failed and server.dbsize() == 8
