"""A page as tests read it: from a server, or as text."""

import json
import re
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit


def record_of(text):
    """What the script element of a page holds."""
    return json.loads(re.search(r'id="record">(.*?)</script>', text, re.S)[1])


def answer_of(address, method="GET", body=None, **headers):
    """Status and text of a server's answer."""
    with closing(HTTPConnection(urlsplit(address).netloc, timeout=60)) as line:
        line.request(method, urlsplit(address).path, body, headers)
        answer = line.getresponse()
        return answer.status, answer.read().decode()
