# The image of a release: the program that was built for it, and nothing else. Dockerfile is for images of one's own.
FROM gcr.io/distroless/static-debian12:nonroot
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/weir /weir
USER 65532:65532
EXPOSE 7070 7071
ENTRYPOINT ["/weir"]
CMD ["serve"]
