# The bridge alone: sprites live elsewhere (--provider sprites). See docs/deployment.md.
FROM python:3.11-slim AS build
WORKDIR /build
COPY bridge/requirements.txt sprite/constraints.txt ./
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt -r requirements.txt

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data --create-home bridge
COPY --from=build /venv /venv
WORKDIR /app
# What is typed without --data means the volume.
RUN ln -s /data data
COPY bridge/ bridge/
# Files to ship into VMs; of them only the wire's definition and the prices are ever imported here.
COPY sprite/ sprite/
RUN /venv/bin/python -m compileall -q bridge sprite
USER bridge
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=4)"]
ENTRYPOINT ["python", "-m", "bridge"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080", "--provider", "sprites"]
