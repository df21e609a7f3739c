"""Secrets that are recognised by their own shape, whatever stands around them: prefixes, lengths, alphabets.

The model vendors' keys and the formats that must be found in any context are ours. The long tail (some 200
services) are the rules of gitleaks, which the `secretscreen` package ships as data: the file alone is read, since
importing the package would cost 90 ms.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: What must not stand before a token. A slash may: tokens stand in paths of URLs.
_START = r"(?<![A-Za-z0-9])"
#: What can stand at the end of a context in which gitleaks finds a secret. In a person's prose and in JSON a comma,
#: a bracket or a full stop ends one just as well, so that ours is "no more of the token".
_GITLEAKS_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_END = r"(?![A-Za-z0-9_])"
#: gitleaks takes the name before its keyword in, to show it; for us it only costs time.
_GITLEAKS_LEAD = r"[\w.-]{0,50}?"
#: The sign of a rule that knows a secret by the name it is given, not by its shape: the secret is a group of it.
_GITLEAKS_ASSIGNMENT = r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)"
_GITLEAKS_UNUSED = frozenset(
    {
        "generic-api-key",  # assignments are read in `secret_contexts`, which knows code from configuration
        "curl-auth-header",  # the same; and its time is not linear
        "curl-auth-user",
        "kubernetes-secret-yaml",
        "private-key",  # ours takes one without its end as well
        "jwt",
        "hashicorp-tf-password",
        "sourcegraph-access-token",  # any commit's hash in a text that names the company
        "square-access-token",  # EAAA stands in many a base64 image
        "vault-service-token",  # "s." and 24 letters stand in minified code
        "twilio-api-key",
        "openai-api-key",
        "nuget-config-password",  # an assignment like any other
        "slack-app-token",  # ours, with a start that keeps it linear
        "slack-legacy-token",
    }
)
#: What ours find as well, with fewer demands on what follows.
_OURS = re.compile(
    r"(?:github|gitlab|slack|shopify|digitalocean|huggingface|anthropic|perplexity|grafana|vault|databricks|npm|stripe|pypi"
    r"|sendgrid|rubygems|openai|aws-access|flyio|airtable-personnal|notion|sendinblue|sentry-(?:org|user)|age-secret)"
)
_NOT_SECRET = re.compile(r"client-id|pub(?:lic)?-key|access-id|webhook-id")


@dataclass(frozen=True, slots=True)
class Format:
    """A shape. `markers`, one of which is in every such secret, are lower case; `grouped`: the secret is a group."""

    kind: str
    markers: tuple[str, ...]
    pattern: Callable[[], re.Pattern[str]]
    grouped: bool = False
    entropy: float = 0.0

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Where such secrets stand."""
        found = []
        for match in self.pattern().finditer(text):
            start, end = _longest_group(match) if self.grouped else match.span()
            if end > start and (not self.entropy or entropy(text[start:end]) >= self.entropy):
                found.append((start, end, self.kind))
        return found


def entropy(text: str) -> float:
    """Bits per character (Shannon)."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def _longest_group(match: re.Match[str]) -> tuple[int, int]:
    spans = [match.span(number) for number in range(1, (match.re.groups or 0) + 1)]
    return max(spans or [match.span()], key=lambda span: span[1] - span[0])


def _own(kind: str, pattern: str, *markers: str, entropy: float = 0.0) -> Format:
    return Format(kind, markers, functools.cache(lambda: re.compile(pattern)), entropy=entropy)


def _token(kind: str, prefix: str, body: str, *markers: str, entropy: float = 0.0) -> Format:
    """A prefix and so many characters; more of them belong to it, whatever the vendor's documentation says."""
    return _own(kind, f"{_START}(?:{prefix}){body}", *markers, entropy=entropy)


_WORD = "[A-Za-z0-9_-]"
_ALNUM = "[A-Za-z0-9]"
_HEX = "[0-9a-f]"

OWN_FORMATS = (
    # Model vendors.
    _token("anthropic-api-key", "sk-ant-", f"{_WORD}{{16,}}", "sk-ant-"),
    _token("openrouter-api-key", "sk-or-", f"{_WORD}{{20,}}", "sk-or-"),
    _token("openai-api-key", "sk-(?:proj|svcacct|admin|None)-", f"{_WORD}{{20,}}", "sk-"),
    # Deepseek, Moonshot, DashScope, StepFun, Stability and many gateways took OpenAI's older form over.
    _token("openai-api-key", r"sk-(?!ant-|or-|proj-)(?:[a-z]{2,12}-){0,2}", f"{_ALNUM}{{20,}}", "sk-", entropy=2.8),
    _token("google-api-key", "AIza", f"{_WORD}{{35,}}", "aiza"),
    _token("google-api-key", r"AQ\.Ab", f"{_WORD}{{30,}}", "aq.ab"),
    _token("xai-api-key", "xai-", f"{_ALNUM}{{40,}}", "xai-"),
    _token("groq-api-key", "gsk_", f"{_ALNUM}{{30,}}", "gsk_"),
    _token("hugging-face-token", "hf_|api_org_", f"{_ALNUM}{{30,}}", "hf_", "api_org_"),
    _token("replicate-token", "r8_", f"{_ALNUM}{{30,}}", "r8_"),
    _token("perplexity-api-key", "pplx-", f"{_ALNUM}{{32,}}", "pplx-"),
    _token("cerebras-api-key", "csk-", f"{_ALNUM}{{32,}}", "csk-"),
    _token("nvidia-api-key", "nvapi-", f"{_WORD}{{40,}}", "nvapi-"),
    _token("together-api-key", "tgp_v1_", f"{_WORD}{{30,}}", "tgp_v1_"),
    _token("fireworks-api-key", "fw_", f"{_ALNUM}{{20,}}", "fw_", entropy=3.2),
    _token("langchain-api-key", "lsv2_(?:pt|sk)_", "[0-9a-f_]{32,}", "lsv2_"),
    _token("pinecone-api-key", "pcsk_", f"{_WORD}{{40,}}", "pcsk_"),
    _token("voyage-api-key", "pa-", f"{_WORD}{{40,}}", "pa-", entropy=4.2),
    _token("elevenlabs-api-key", "sk_", f"{_HEX}{{48}}", "sk_"),
    _token("tavily-api-key", "tvly-", f"{_WORD}{{20,}}", "tvly-"),
    _token("firecrawl-api-key", "fc-", f"{_HEX}{{32}}", "fc-"),
    _token("jina-api-key", "jina_", f"{_WORD}{{40,}}", "jina_"),
    _token("wandb-api-key", "wandb_v1_", f"{_WORD}{{30,}}", "wandb_v1_"),
    _token("e2b-api-key", "e2b_", f"{_HEX}{{32,}}", "e2b_"),
    _token("runpod-api-key", "rpa_", f"{_ALNUM}{{30,}}", "rpa_"),
    # Clouds.
    _token("aws-access-key", "AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9]", "[A-Z0-9]{16}(?![A-Za-z0-9])", "akia", "asia", "abia",
           "acca", "a3t"),
    _token("aws-bedrock-key", "ABSK|bedrock-api-key-", "[A-Za-z0-9+/]{80,}={0,2}", "absk", "bedrock-api-key-"),
    _own("azure-storage-key", r"(?i:(?<=accountkey=)|(?<=accesskey=))[A-Za-z0-9+/]{40,}={0,2}", "accountkey=",
         "accesskey="),
    _own("azure-sas-token", r"(?<=[?&;])sig=[A-Za-z0-9%+/]{40,}={0,2}", "sig="),
    _own("azure-client-secret", r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,}", "q~"),
    _token("google-oauth-secret", "GOCSPX-", f"{_WORD}{{20,}}", "gocspx-"),
    _token("google-oauth-token", r"ya29\.", r"[A-Za-z0-9_.-]{20,}", "ya29."),
    _token("google-refresh-token", "1//0", f"{_WORD}{{30,}}", "1//0"),
    _token("firebase-server-key", f"AAAA{_WORD}{{7}}:", f"{_WORD}{{100,}}", "aaaa"),
    _token("digitalocean-token", "do[opr]_v1_", f"{_HEX}{{40,}}", "_v1_"),
    _token("fly-token", "fo1_|fm[12][ar]?_", r"[A-Za-z0-9+/=_,-]{40,}", "fo1_", "fm1", "fm2"),
    _token("supabase-token", "sbp_(?:v0_)?|sb_secret_", f"{_WORD}{{20,}}", "sbp_", "sb_secret_"),
    _token("vault-token", r"hv[sbr]\.", f"{_WORD}{{20,}}", "hvs.", "hvb.", "hvr."),
    _token("tailscale-key", "tskey-", r"[a-z]{2,12}-[A-Za-z0-9-]{16,}", "tskey-"),
    # Code and packages.
    _token("github-token", "gh[pousr]_", f"{_ALNUM}{{30,}}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _token("github-token", "github_pat_", r"[A-Za-z0-9_]{30,}", "github_pat_"),
    _token("gitlab-token", r"gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas|ffct)-", r"[A-Za-z0-9_.-]{20,}", "glpat-",
           "gldt-", "glft-", "glsoat-", "glrt-", "glcbt-", "glimt-", "glptt-", "glagent-", "gloas-", "glffct-"),
    _token("gitlab-token", "GR1348941", f"{_WORD}{{20,}}", "gr1348941"),
    _token("bitbucket-token", "ATBB|ATCTT3", r"[A-Za-z0-9_=-]{28,}", "atbb", "atctt3", entropy=3.5),
    _token("atlassian-token", "ATATT3", r"[A-Za-z0-9_=-]{40,}", "atatt3"),
    _token("npm-token", "npm_", f"{_ALNUM}{{30,}}", "npm_"),
    _token("pypi-token", "pypi-", f"{_WORD}{{50,}}", "pypi-"),
    _token("rubygems-token", "rubygems_", f"{_HEX}{{40,}}", "rubygems_"),
    _token("crates-io-token", "cio", f"{_ALNUM}{{32}}(?!{_ALNUM})", "cio", entropy=3.8),
    _token("nuget-api-key", "oy2", "[a-z0-9]{43}(?![a-z0-9])", "oy2"),
    _token("docker-token", "dckr_(?:pat|oat)_", f"{_WORD}{{20,}}", "dckr_"),
    _token("circleci-token", "CCIPAT_|CCIPRJ_", f"{_WORD}{{30,}}", "ccip"),
    _token("sentry-token", "sntry[su]_", r"[A-Za-z0-9_+/=-]{40,}", "sntry"),
    # People and money.
    _token("slack-token", r"xox[a-z](?:\.xox[a-z])?-|xapp-", r"[A-Za-z0-9-]{16,}", "xox", "xapp-"),
    _own("slack-webhook", r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/[A-Za-z0-9_/-]{20,}",
         "hooks.slack"),
    _own("discord-webhook", r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{15,22}/[A-Za-z0-9_-]{40,}",
         "/webhooks/"),
    _own("discord-token", rf"{_START}[MNO][A-Za-z0-9_-]{{22,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,}}", "."),
    _own("telegram-bot-token", r"(?<![A-Za-z0-9:.])(?:bot)?\d{8,11}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])", ":",
         entropy=4.0),
    _token("stripe-key", "(?:sk|rk)_(?:live|test|prod)_|whsec_", r"[A-Za-z0-9+/=]{16,}", "k_live_", "k_test_",
           "k_prod_", "whsec_"),
    _token("square-token", "sq0(?:atp|csp)-", f"{_WORD}{{20,}}", "sq0"),
    _token("razorpay-key", "rzp_(?:live|test)_", f"{_ALNUM}{{14,}}", "rzp_"),
    _token("paystack-key", "(?:sk|pk)_(?:live|test)_", f"{_HEX}{{40}}", "k_live_", "k_test_"),
    _token("twilio-key", "SK|AC", f"{_HEX}{{32}}(?!{_ALNUM})", "sk", "ac"),
    _token("sendgrid-api-key", r"SG\.", f"{_WORD}{{16,}}\\.{_WORD}{{16,}}", "sg."),
    _token("mailgun-api-key", "key-|pubkey-", "[0-9a-z]{32}(?![0-9a-z])", "key-", entropy=3.2),
    _own("mailchimp-api-key", rf"(?<![0-9a-z]){_HEX}{{32}}-us\d{{1,2}}(?!\w)", "-us"),
    _token("brevo-api-key", "xkeysib-|xsmtpsib-", r"[0-9a-f]{40,}(?:-[A-Za-z0-9]{10,})?", "xkeysib-", "xsmtpsib-"),
    _token("resend-api-key", "re_", f"{_ALNUM}{{6,12}}_{_ALNUM}{{16,}}", "re_", entropy=3.8),
    _token("notion-token", "ntn_|secret_", f"{_ALNUM}{{40,}}", "ntn_", "secret_", entropy=4.0),
    _token("airtable-token", "pat", rf"{_ALNUM}{{14}}\.{_HEX}{{64}}", "pat"),
    _token("figma-token", "fig[dour]_", f"{_WORD}{{30,}}", "figd_", "figo_", "figu_", "figr_"),
    _token("linear-api-key", "lin_(?:api|oauth)_", f"{_ALNUM}{{30,}}", "lin_"),
    _token("shopify-token", "shp(?:at|ca|pa|ss|tka)_", "[0-9a-fA-F]{32,}", "shp"),
    _token("dropbox-token", r"sl\.(?:u\.)?", f"{_WORD}{{60,}}", "sl."),
    _token("databricks-token", "dapi", rf"{_HEX}{{32}}(?:-\d)?(?!{_ALNUM})", "dapi"),
    _token("newrelic-key", "NRAK-|NRII-|NRJS-", r"[A-Za-z0-9_-]{19,}", "nrak-", "nrii-", "nrjs-"),
    _token("grafana-token", "glc_|glsa_", r"[A-Za-z0-9_+/=]{28,}", "glc_", "glsa_"),
    _token("posthog-key", "phx_", f"{_ALNUM}{{30,}}", "phx_"),
    _token("age-secret-key", "AGE-SECRET-KEY-1", "[A-Z0-9]{58}", "age-secret-key-1"),
    _token("onepassword-token", "ops_eyJ", r"[A-Za-z0-9_+/=-]{60,}", "ops_eyj"),
    # A header, a payload and (nearly always) a signature; five parts if it is encrypted.
    _own("jwt", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}={0,2}(?:\.[A-Za-z0-9_+/-]*={0,2}){1,4}", "eyj"),
)  # fmt: skip


@functools.cache
def library_formats() -> tuple[Format, ...]:
    """The rules of gitleaks that we use; reading them takes 15 ms, once."""
    import tomllib

    spec = importlib.util.find_spec("secretscreen")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("secretscreen")
    rules = tomllib.loads((Path(spec.submodule_search_locations[0]) / "gitleaks.toml").read_text("utf-8"))["rules"]
    return tuple(
        Format(
            kind=rule["id"],
            markers=tuple(keyword.lower() for keyword in rule["keywords"]),
            pattern=functools.cache(functools.partial(_compiled, rule["regex"])),
            grouped=_GITLEAKS_ASSIGNMENT in rule["regex"],
            entropy=rule.get("entropy", 0.0),
        )
        for rule in rules
        if "regex" in rule
        and "keywords" in rule
        and rule["id"] not in _GITLEAKS_UNUSED
        and not _OURS.match(rule["id"])
        and not _NOT_SECRET.search(rule["id"])
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of Go's in Python's words."""
    pattern = pattern.replace(_GITLEAKS_LEAD, "").replace(_GITLEAKS_END, _END).replace(r"\z", r"\Z")
    while (at := pattern.find("(?i)", 1)) > 0:
        end = _end_of_group(pattern, at)
        pattern = f"{pattern[:at]}(?i:{pattern[at + 4 : end]}){pattern[end:]}"
    return re.compile(pattern)


def _end_of_group(pattern: str, at: int) -> int:
    """Where the group ends in which a flag is switched on: so far does Go let it reach."""
    depth, in_class, index = 0, False, at + 4
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            # A bracket that comes first belongs to the class.
            index += pattern[index + 1 : index + 2] == "]"
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth < 0:
                return index
        index += 1
    return index
